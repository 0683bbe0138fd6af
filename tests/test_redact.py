"""What is shown of values under names of REDACT: nothing. The rows keep them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from django_jobs import Context, redact, registry
from django_jobs.decorators import job
from django_jobs.models import Job
from django_jobs.redact import MARK

pytestmark = pytest.mark.fast
LONG = 's3cr3t-Zürich\'s "key"\nof two lines'


def greet(context: Context, user: str, api_token: str = "", /, *passwords: str, **options: Any) -> None: ...


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know a type whose second argument is a token, and whose rest are passwords."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    job(name="redact.greet", takes_context=True)(greet)


def test_what_mappings_have_under_such_names_is_masked_at_any_depth_and_in_any_case() -> None:
    given = {
        "user": "eva",
        "Password": "a",
        "logins": [{"API_TOKEN": {"value": 1}, "at": 2}, [{"client-secret": None}]],
        "note": "password",
    }
    assert redact.value(given) == {
        "user": "eva",
        "Password": MARK,
        "logins": [{"API_TOKEN": MARK, "at": 2}, [{"client-secret": MARK}]],
        "note": "password",
    }
    assert given["Password"] == "a", "what is given stays as it is"


@pytest.mark.parametrize("given", [None, 1, True, "token", [], {}, [1, ["token"]]])
def test_other_values_are_shown_as_they_are(given: Any) -> None:
    assert redact.value(given) == given


def test_arguments_by_place_are_masked_by_the_names_of_the_registered_signature() -> None:
    payload = {"args": ["eva", "abcd", "x", "y"], "kwargs": {"color": "red", "new_password": 1, "deep": {"Secret": 2}}}
    assert redact.arguments("redact.greet", payload) == {
        "args": ["eva", MARK, MARK, MARK],
        "kwargs": {"color": "red", "new_password": MARK, "deep": {"Secret": MARK}},
    }
    assert redact.secrets("redact.greet", payload) == ("abcd",), "what is shorter is in too many words"


def test_of_an_unknown_type_what_has_names_of_its_own_is_masked() -> None:
    payload = {"args": ["eva", {"token": "abcd"}], "kwargs": {"password": "efgh"}}
    masked = {"args": ["eva", {"token": MARK}], "kwargs": {"password": MARK}}
    assert redact.arguments("redact.gone", payload) == masked
    assert redact.secrets("redact.gone", payload) == ("abcd", "efgh")


@pytest.mark.parametrize(
    "payload", [None, 3, [{"token": "abcd"}], {"args": 3, "kwargs": None}, {"kwargs": {"token": 1}}]
)
def test_a_payload_that_enqueue_would_not_have_stored_is_masked_by_its_names(payload: Any) -> None:
    assert redact.arguments("redact.greet", payload) == redact.value(payload)


def test_an_empty_setting_masks_nothing(settings: Any) -> None:
    settings.DJANGO_JOBS = {"REDACT": []}
    payload = {"args": ["eva", "abcd"], "kwargs": {"password": "efgh"}}
    text = json.dumps(payload)
    assert redact.value(payload) == payload
    assert redact.arguments("redact.greet", payload) == payload
    assert redact.secrets("redact.greet", payload) == ()
    assert redact.text("password=abcd", ["abcd"]) == "password=abcd"
    assert redact.call_text(text, "redact.greet") == text


def test_the_setting_says_which_names(settings: Any) -> None:
    settings.DJANGO_JOBS = {"REDACT": ["IBAN"]}
    assert redact.value({"iban_no": 1, "token": 2}) == {"iban_no": MARK, "token": 2}
    assert redact.text("ibanNumber: DE12, token: x") == f"ibanNumber: {MARK}, token: x"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("login(user='eva', password='it\\'s')", f"login(user='eva', password={MARK})"),
        ('{"user": "eva", "api_token": "a\\"b", "x": 1}', f'{{"user": "eva", "api_token": {MARK}, "x": 1}}'),
        ("{'PassWord': 'a', 'x': 1}", f"{{'PassWord': {MARK}, 'x': 1}}"),
        ("'{\\'token\\': \\'ab\\'}'", f"'{{\\'token\\': {MARK}}}'"),
        ("password: hunter2, try again", f"password: {MARK}, try again"),
        ("GET /pay?token=ab.c-d&user=1 failed", f"GET /pay?token={MARK}&user=1 failed"),
        ("Token: Bearer abc.def", f"Token: {MARK}"),
        ("secret_key=b'\\x00ab' rest", f"secret_key={MARK} rest"),
        ("{'token': {'id': 1, 'parts': ['a}', 'b']}, 'x': 1}", f"{{'token': {MARK}, 'x': 1}}"),
        ("tokens=['a', 'b'], x=1", f"tokens={MARK}, x=1"),
        ("assert token == 'abc'", f"assert token == {MARK}"),
        ("os.environ['MY_SECRET'] = 'abc'", f"os.environ['MY_SECRET'] = {MARK}"),
        ("'access token': 'abc'", f"'access token': {MARK}"),
        ("cut: {'token': 'abc de", f"cut: {{'token': {MARK}"),
        ("password=12345", f"password={MARK}"),
        ("password=", "password="),
        ("the password was refused: try another", "the password was refused: try another"),
        ("shop.errors.TokenError: refused", "shop.errors.TokenError: refused"),
        ("nothing of it here", "nothing of it here"),
    ],
)
def test_in_free_text_what_such_names_are_said_to_be_is_masked(given: str, shown: str) -> None:
    assert redact.text(given) == shown


@pytest.mark.parametrize(
    "way",
    [
        LONG,
        repr(LONG),
        json.dumps(LONG),
        json.dumps(LONG, ensure_ascii=False),
        "s3cr3t-Z%C3%BCrich%27s%20%22key%22%0Aof%20two%20lines",
        '  | s3cr3t-Zürich\'s "key"\n  | of two lines',
    ],
)
def test_in_free_text_the_values_of_the_arguments_themselves_are_masked_however_they_are_spelled(way: str) -> None:
    found = redact.secrets("redact.greet", {"args": ["eva", LONG], "kwargs": {"password": 123456}})
    shown = redact.text(f"eva: {way} is wrong, as is 123456", found)
    assert "s3cr3t" not in shown
    assert "lines" not in shown
    assert shown.startswith("eva: ")
    assert shown.endswith(f"is wrong, as is {MARK}")


ENDLESS = [
    "token" * 20_000,
    "token=" * 20_000,
    "token='" + "a" * 200_000,
    "token=[" + "'\\" * 50_000,
    "x" * 200_000,
    "token=" + "[" * 200_000,
]


@pytest.mark.parametrize("text", ENDLESS)
def test_no_text_is_long_looked_through(text: str) -> None:
    began = time.perf_counter()
    redact.text(text)
    assert time.perf_counter() - began < 2


def test_of_a_job_with_more_secrets_than_can_be_looked_for_no_text_is_shown() -> None:
    many = tuple(f"secret {number}" for number in range(1001))
    assert redact.text("secret 7", many) == MARK
    assert redact.text("all is well", many) == MARK


PAYLOAD = {"args": ["eva", "abcd", "efgh"], "kwargs": {"color": "red", "password": "it's {mine}", "size": 3}}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_beginning_of_a_payload_shows_no_secret_wherever_it_is_cut(separators: tuple[str, str]) -> None:
    text = json.dumps(PAYLOAD, separators=separators)
    assert json.loads(redact.call_text(text, "redact.greet")) == redact.arguments("redact.greet", PAYLOAD)
    for length in range(len(text)):
        shown = redact.call_text(text[:length], "redact.greet")
        assert not any(part in shown for part in ("ab", "ef", "it'", "mine")), shown
        unknown = redact.call_text(text[:length])
        assert "it'" not in unknown, unknown
        assert ("abcd" in unknown) == ("abcd" in text[:length]), "its place has no name"
    shown = redact.call_text(text[: text.index("size")], "redact.greet")
    assert shown.replace(" ", "") == f'{{"args":["eva",{MARK},{MARK}],"kwargs":{{"color":"red","password":{MARK},"'


def test_the_secrets_of_a_payload_that_was_cut_are_found_as_far_as_they_go() -> None:
    text = json.dumps(PAYLOAD)
    assert redact.secrets("redact.greet", text) == ("abcd", "efgh", "it's {mine}")
    assert redact.secrets("redact.greet", text[: text.index("{mine")]) == ("abcd", "efgh", "it's ")


def test_of_a_job_all_is_masked_and_the_row_keeps_it() -> None:
    line = {"run": 1, "cause": "raised", "error": "abcd was refused", "worker": "w", "seconds": 1.0}
    row = Job(
        type="redact.greet",
        payload={"args": ["eva", "abcd"], "kwargs": {}},
        result={"token": "new", "user": "eva"},
        progress={"done": 1, "total": 2, "note": "with abcd, password=xyz"},
        history=[line],
        meta={"tags": ["a"], "secret": 1},
        last_error="Traceback ...\n  login('eva', 'abcd')\nValueError: abcd was refused",
        cancel_reason="by eva: abcd leaked",
    )
    shown = redact.job(row)
    assert shown == redact.Shown(
        payload={"args": ["eva", MARK], "kwargs": {}},
        result={"token": MARK, "user": "eva"},
        progress={"done": 1, "total": 2, "note": f"with {MARK}, password={MARK}"},
        history=[{**line, "error": f"{MARK} was refused"}],
        meta={"tags": ["a"], "secret": MARK},
        last_error=f"Traceback ...\n  login('eva', '{MARK}')\nValueError: {MARK} was refused",
        cancel_reason=f"by eva: {MARK} leaked",
        secrets=("abcd",),
    )
    assert row.payload["args"][1] == "abcd"
    assert row.last_error.endswith("abcd was refused")
