"""Results and texts of handlers, made storable; what two JSON texts have in common."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import InvalidJob, JobsError
from django_jobs.exceptions import InvalidJobType
from django_jobs.payload import DEPTH_LIMIT, Check, TooLarge, dump, dump_result, plain, same, storable
from tests.enqueues import doubled

pytestmark = pytest.mark.fast
LIMIT = 1000
# A busy machine is no fault of the code.
quietly = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@quietly
@given(values)
def test_what_is_dumped_is_read_back_as_it_was(value: Any) -> None:
    assert repr(json.loads(dump(value))) == repr(value)


@quietly
@given(st.floats(min_value=1e16, allow_infinity=False))
def test_a_float_keeps_its_decimal_point_however_large(value: float) -> None:
    assert dump([value, f"{value}"]) == f'[{Decimal(repr(value)):f}.0,"{value}"]'
    assert json.loads(dump(value)) == value


@quietly
@given(values)
def test_a_text_says_the_same_as_itself_in_another_spelling(value: Any) -> None:
    assert same(dump(value), json.dumps(value, sort_keys=True, indent=1))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "true"),
        ("0", "false"),
        ("[1]", "[true]"),
        ('"1"', "1"),
        ("null", "0"),
        ("[]", "{}"),
        ("0.1", "0.10000001"),
    ],
)
def test_what_json_tells_apart_is_not_the_same(left: str, right: str) -> None:
    assert not same(left, right)


@pytest.mark.parametrize(
    ("left", "right"), [("1", "1.0"), ("1e2", "100"), ("1e23", "1" + "0" * 23), ('{"a":1,"b":2}', '{"b":2,"a":1}')]
)
def test_numbers_and_objects_are_the_same_in_every_spelling(left: str, right: str) -> None:
    assert same(left, right)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (0, "0"),
        ("ß\x00\ud800", '"ß\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"'),
        (
            ["a\x00", {"b\ud800": "\udfff"}],
            '["a\N{REPLACEMENT CHARACTER}",{"b\N{REPLACEMENT CHARACTER}":"\N{REPLACEMENT CHARACTER}"}]',
        ),
        ({"a": [1, 1.5, True, None]}, '{"a":[1,1.5,true,null]}'),
    ],
)
def test_a_result_is_made_storable(value: Any, stored: str | None) -> None:
    assert dump_result(value, LIMIT) == stored


def nest(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth - 1):
        inner = [inner]
    return inner


TWICE: list[Any] = []
TWICE += [TWICE, TWICE]


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ((1, 2), InvalidJobType, "the result is a tuple ((1, 2)), not JSON; pass a list."),
        (
            {"a": {1}},
            InvalidJobType,
            "the result['a'] is a set ({1}), not JSON; pass a list, for example sorted(value).",
        ),
        ([object()], InvalidJobType, "the result[0] is a object, not JSON; pass text, numbers, lists and dicts only."),
        ({1: 2}, InvalidJobType, "the result has the key 1; JSON keys are text: pass str(key)."),
        (float("nan"), InvalidJob, "the result is nan, which JSON has no word for; pass None or text."),
        (nest(101), InvalidJob, "the result is nested over 100 deep; return flatter data."),
        (
            doubled(60),
            InvalidJob,
            "the result is over 1,000 bytes of JSON; MAX_RESULT_BYTES allows 1,000. Store it elsewhere and return where.",
        ),
        (TWICE, InvalidJob, "the result is nested over 100 deep; return flatter data."),
        (
            "ß" * 500,
            InvalidJob,
            "the result is 1,002 bytes of JSON; MAX_RESULT_BYTES allows 1,000. Store it elsewhere and return where.",
        ),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(value: Any, error: type[JobsError], said: str) -> None:
    with pytest.raises(error) as caught:
        dump_result(value, LIMIT)
    assert str(caught.value) == said


def test_results_at_the_limits_are_stored() -> None:
    assert dump_result("ß" * 499, LIMIT) == f'"{"ß" * 499}"'
    assert dump_result(nest(100), LIMIT) == "[" * 100 + "]" * 100
    assert dump_result({"a": [nest(98), 5]}, LIMIT) == '{"a":[' + "[" * 98 + "]" * 98 + ",5]}"


def test_a_long_text_is_cut_in_its_middle() -> None:
    cut = storable("a" * 60 + "\x00" + "b" * 60, limit=60)
    assert cut == "a" * 13 + " ... 95 characters left out ... " + "b" * 13
    assert storable("a\x00", limit=20) == "a\N{REPLACEMENT CHARACTER}"


@quietly
@given(st.integers(0, 3000), st.integers(50, 1000))
def test_a_text_that_was_cut_is_one_line_within_the_limit_and_says_how_much_was_cut(size: int, limit: int) -> None:
    cut = storable("x" * size, limit)
    assert len(cut) <= limit
    assert "\n" not in cut
    left_out = re.search(r" \.\.\. (\d+) characters left out \.\.\. ", cut)
    assert cut.count("x") == size - (int(left_out[1]) if left_out else 0)


@quietly
@given(values)
def test_what_is_found_too_large_before_it_is_written_is_too_large(value: Any) -> None:
    size = len(dump(value).encode())
    Check(size)(value, "it")
    with pytest.raises(TooLarge):
        Check(0)(value, "it")


@pytest.mark.parametrize("value", [0, 7, 8, 9, 10, 15, 16, 99, 10**20, -(10**4200), "", "a", [8] * 9, {"a": 8}])
def test_what_has_just_the_size_that_is_allowed_is_not_too_large(value: Any) -> None:
    assert dump_result(value, len(dump(value))) == dump(value)


@pytest.mark.parametrize("value", [doubled(60), ["a" * 1_000] * 2_000, [10**4000] * 1_000, [{"k" * 1_000: 1}] * 2_000])
def test_values_that_are_held_many_times_are_not_walked_to_their_end(value: Any) -> None:
    with pytest.raises(TooLarge):
        Check(1_000_000)(value, "it")


# The glance at arguments that are plainly right.


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


oddities = st.one_of(
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["\x00", "\\u0000", "\\\x00", "\ud800", Text("a"), Whole(1), 10**18, -(10**18), 1 << 14_000]),
    st.sampled_from([4_300, 5_000]).map(lambda digits: 10**digits),
    st.sampled_from([(), (1,), {1}, b"", Decimal(1), object(), type, ...]),
)
anything = st.recursive(
    values | oddities,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | oddities.filter(_hashable), inner, max_size=4),
    max_leaves=12,
)


def looked_at(args: list[Any], kwargs: dict[str, Any], limit: int) -> str | None:
    """Return what piece by piece is found to be storable."""
    check = Check(limit)
    try:
        for value in (*args, *kwargs, *kwargs.values()):
            check(value, "it")
    except (JobsError, TooLarge):
        return None
    text = dump({"args": args, "kwargs": kwargs})
    return text if len(text.encode()) <= limit else None


@quietly
@given(st.lists(anything, max_size=3), st.dictionaries(st.text(st.characters(), max_size=5), anything, max_size=3))
def test_a_glance_lets_nothing_through_that_a_look_refuses_and_writes_the_same(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    found = plain(args, kwargs, LIMIT)
    if found is not None:
        assert found == looked_at(args, kwargs, LIMIT) == json_of({"args": args, "kwargs": kwargs})
        assert "\n" not in found


@quietly
@given(st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_a_glance_suffices_for_what_is_small_and_plain(args: list[Any], kwargs: dict[str, Any]) -> None:
    large = any(abs(int(number)) >= 10**18 for number in re.findall(r"\d+", dump([args, kwargs])))
    assert large or plain(args, kwargs, 10**6) is not None or "u0000" in dump([args, kwargs])


def json_of(value: Any) -> str:
    """Return JSON as Python's own function writes it, with large floats as they are stored."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return dump(json.loads(text)) if "e+" in text else text


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (nest(DEPTH_LIMIT), True),
        (nest(DEPTH_LIMIT + 1), False),
        (TWICE, False),
        (doubled(60), False),
        ("x" * (LIMIT - 30), True),
        ("x" * LIMIT, False),
        ("ß" * (LIMIT // 2), False),
        ([0] * (LIMIT + 1), False),
        ([[]] * (LIMIT + 1), False),
        ({"x" * LIMIT: 1}, False),
        (float("nan"), False),
        ([float("inf")], False),
        ("\x00", False),
        ("a\ud800", False),
        ({"\x00": 1}, False),
        ((1,), False),
        ([(1,)], False),
        ({1: 1}, False),
        ({Text("a"): 1}, False),
        (Whole(1), False),
        (10**18, False),
        (-(10**18) + 1, True),
        ([None, True, 1.5, "ß", {"a": []}], True),
    ],
)
def test_at_its_limits_a_glance_leaves_it_to_a_look(value: Any, passes: bool) -> None:
    assert (plain([value], {}, LIMIT) is not None) is passes
    assert (plain([], {"a": value}, LIMIT) is not None) is passes
