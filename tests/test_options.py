"""The options of `@job` and of `using`. No database: nothing here gets as far as one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import InvalidJob, JobsError, job
from django_jobs.exceptions import InvalidJobType
from django_jobs.options import UNSET, Define, Enqueue
from tests.app.jobs import nothing

pytestmark = pytest.mark.fast


def plain() -> None: ...


# Values that neither takes. Each error names the value and what to give instead.

WHOLE_PRIORITY = "give a whole number from -100 to 100"
WHOLE_ATTEMPTS = "give a whole number from 1 to 1000000"
SECONDS = "give seconds from 0 to 315360000 (ten years)"
TIME_OR_SECONDS = "give a datetime, seconds as a number, or a timedelta"
SECONDS_OR_DELTA = "give seconds as a number, or a timedelta"

BOTH: list[tuple[str, Any, type[JobsError], str]] = [
    ("priority", True, InvalidJobType, f"priority is True; {WHOLE_PRIORITY}"),
    ("priority", 1.0, InvalidJobType, f"priority is 1.0; {WHOLE_PRIORITY}"),
    ("priority", "1", InvalidJobType, f"priority is '1'; {WHOLE_PRIORITY}"),
    ("priority", float("nan"), InvalidJobType, f"priority is nan; {WHOLE_PRIORITY}"),
    ("priority", 101, InvalidJob, f"priority is 101; {WHOLE_PRIORITY}"),
    ("priority", -101, InvalidJob, f"priority is -101; {WHOLE_PRIORITY}"),
    ("priority", 10**5000, InvalidJob, f"priority is <int>; {WHOLE_PRIORITY}"),
    ("max_attempts", 0, InvalidJob, f"max_attempts is 0; {WHOLE_ATTEMPTS}"),
    ("max_attempts", -1, InvalidJob, f"max_attempts is -1; {WHOLE_ATTEMPTS}"),
    ("max_attempts", 1_000_001, InvalidJob, f"max_attempts is 1000001; {WHOLE_ATTEMPTS}"),
    ("max_attempts", True, InvalidJobType, f"max_attempts is True; {WHOLE_ATTEMPTS}"),
    ("max_attempts", 2.5, InvalidJobType, f"max_attempts is 2.5; {WHOLE_ATTEMPTS}"),
    ("timeout", 0, InvalidJob, "timeout is 0; give seconds over 0, or None for no deadline"),
    ("timeout", timedelta(0), InvalidJob, f"timeout is {timedelta(0)!r}; give seconds over 0, or None for no deadline"),
    ("timeout", -1, InvalidJob, f"timeout is -1; {SECONDS}"),
    ("timeout", float("nan"), InvalidJob, f"timeout is nan; {SECONDS}"),
    ("timeout", float("inf"), InvalidJob, f"timeout is inf; {SECONDS}"),
    ("timeout", True, InvalidJobType, f"timeout is True; {SECONDS_OR_DELTA}"),
    ("timeout", "60", InvalidJobType, f"timeout is '60'; {SECONDS_OR_DELTA}"),
    ("timeout", Decimal(60), InvalidJobType, f"timeout is Decimal('60'); {SECONDS_OR_DELTA}"),
    ("queue", "", InvalidJob, "queue: the queue name '' is not a non-empty text"),
    ("queue", 5, InvalidJob, "queue: the queue name 5 is not a non-empty text"),
    ("queue", b"mail", InvalidJob, "queue: the queue name b'mail' is not a non-empty text"),
    (
        "queue",
        "q" * 101,
        InvalidJob,
        f"queue: the queue name {'q' * 20!r}... has 101 characters; at most 100 are allowed",
    ),
    *(
        (
            "queue",
            value,
            InvalidJob,
            f"queue: the queue name {value!r} has a comma, a space or a control character; leave it out",
        )
        for value in ("a,b", "a b", " a", "a\n", "a\t", "a\x00", "a\x7f", "a\u00a0b", "a\u200b", "a\ud800", "\u2028")
    ),
]

ONLY_USING: list[tuple[str, Any, type[JobsError], str]] = [
    ("delay", -1, InvalidJob, f"delay is -1; {SECONDS}"),
    ("delay", timedelta(seconds=-1), InvalidJob, f"delay is -1.0; {SECONDS}"),
    ("delay", timedelta.max, InvalidJob, f"delay is 86400000000000.0; {SECONDS}"),
    ("delay", 315_360_001, InvalidJob, f"delay is 315360001; {SECONDS}"),
    ("delay", 10**400, InvalidJob, f"delay is 1{'0' * 76}...; {SECONDS}"),
    ("delay", 10**5000, InvalidJob, f"delay is <int>; {SECONDS}"),
    ("delay", float("nan"), InvalidJob, f"delay is nan; {SECONDS}"),
    ("delay", float("inf"), InvalidJob, f"delay is inf; {SECONDS}"),
    ("delay", True, InvalidJobType, f"delay is True; {SECONDS_OR_DELTA}"),
    ("delay", "5", InvalidJobType, f"delay is '5'; {SECONDS_OR_DELTA}"),
    ("run_at", 5, InvalidJobType, "run_at is 5; give a datetime"),
    ("run_at", "2030-01-01", InvalidJobType, "run_at is '2030-01-01'; give a datetime"),
    ("run_at", datetime(2030, 1, 1).date(), InvalidJobType, "run_at is datetime.date(2030, 1, 1); give a datetime"),
    (
        "run_at",
        datetime(2030, 1, 1),
        InvalidJob,
        "run_at is 2030-01-01 00:00:00 without a time zone; give an aware datetime, as timezone.now() does",
    ),
    (
        "run_at",
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
        InvalidJob,
        "run_at is 9999-12-31 23:00:00-02:00, beyond the calendar in UTC; give an earlier time",
    ),
    ("expires", 0, InvalidJob, "expires is 0; give seconds over 0, a timedelta, or a datetime"),
    ("expires", -1, InvalidJob, f"expires is -1; {SECONDS}"),
    (
        "expires",
        timedelta(0),
        InvalidJob,
        f"expires is {timedelta(0)!r}; give seconds over 0, a timedelta, or a datetime",
    ),
    ("expires", timedelta.max, InvalidJob, f"expires is 86400000000000.0; {SECONDS}"),
    ("expires", float("nan"), InvalidJob, f"expires is nan; {SECONDS}"),
    ("expires", float("inf"), InvalidJob, f"expires is inf; {SECONDS}"),
    ("expires", True, InvalidJobType, f"expires is True; {TIME_OR_SECONDS}"),
    ("expires", "5", InvalidJobType, f"expires is '5'; {TIME_OR_SECONDS}"),
    (
        "expires",
        datetime(2030, 1, 1).date(),
        InvalidJobType,
        f"expires is datetime.date(2030, 1, 1); {TIME_OR_SECONDS}",
    ),
    (
        "expires",
        datetime(2030, 1, 1),
        InvalidJob,
        "expires is 2030-01-01 00:00:00 without a time zone; give an aware datetime, as timezone.now() does",
    ),
    (
        "expires",
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
        InvalidJob,
        "expires is 9999-12-31 23:00:00-02:00, beyond the calendar in UTC; give an earlier time",
    ),
    *(
        ("unique", value, InvalidJob, f"unique is {value!r}; give one of 'window', 'unfinished', 'waiting'")
        for value in ("", "finished", "Window", True, 1, ["window"], b"window")
    ),
    ("detached", 1, InvalidJobType, "detached is 1; give True or False"),
    ("detached", "yes", InvalidJobType, "detached is 'yes'; give True or False"),
    ("idempotency_key", "", InvalidJob, "idempotency_key is '' of 0 characters; give 1 to 255"),
    ("idempotency_key", "k" * 256, InvalidJob, f"idempotency_key is '{'k' * 76}... of 256 characters; give 1 to 255"),
    ("idempotency_key", 5, InvalidJobType, "idempotency_key is 5; give text"),
    ("idempotency_key", b"k", InvalidJobType, "idempotency_key is b'k'; give text"),
    *(
        (
            "idempotency_key",
            value,
            InvalidJob,
            f"idempotency_key is {value!r}, with a character that cannot be stored; take it out",
        )
        for value in ("a\x00", "a\ud800")
    ),
    *(
        (
            "idempotency_key",
            f"{prefix}1",
            InvalidJob,
            f"idempotency_key is '{prefix}1'; keys beginning with '{prefix}' are reserved, choose another",
        )
        for prefix in ("schedule:", "job:")
    ),
]

ONLY_JOB: list[tuple[str, Any, type[JobsError], str]] = [
    ("name", "", InvalidJob, "name is '' of 0 characters; give 1 to 255"),
    ("name", "n" * 256, InvalidJob, f"name is '{'n' * 76}... of 256 characters; give 1 to 255"),
    ("name", 5, InvalidJobType, "name is 5; give text"),
    ("name", "a\x00", InvalidJob, "name is 'a\\x00', with a character that cannot be stored; take it out"),
    ("backoff", 5, InvalidJobType, "backoff is 5; give Backoff(base=..., factor=..., cap=...)"),
    ("backoff", (1, 2, 3), InvalidJobType, "backoff is (1, 2, 3); give Backoff(base=..., factor=..., cap=...)"),
    ("retry_on", 5, InvalidJobType, "retry_on and fail_on take exception classes, and 5 is none"),
    ("retry_on", (OSError, "x"), InvalidJobType, "retry_on and fail_on take exception classes, and 'x' is none"),
    ("fail_on", [OSError()], InvalidJobType, "retry_on and fail_on take exception classes, and <OSError> is none"),
    ("fail_on", int, InvalidJobType, "retry_on and fail_on take exception classes, and <class 'int'> is none"),
    ("durable", 1, InvalidJobType, "durable is 1; give True or False"),
    ("durable", "yes", InvalidJobType, "durable is 'yes'; give True or False"),
    ("tags", "mail", InvalidJobType, "tags is 'mail'; give a list of texts"),
    ("tags", 5, InvalidJobType, "tags is 5; give a list of texts"),
    ("tags", ["a", 5], InvalidJobType, "a tag is 5; give text"),
    ("tags", [True], InvalidJobType, "a tag is True; give text"),
    ("tags", [""], InvalidJob, "a tag is '' of 0 characters; give 1 to 255"),
    ("tags", ["t" * 256], InvalidJob, f"a tag is '{'t' * 76}... of 256 characters; give 1 to 255"),
    ("tags", ["a\x00"], InvalidJob, "a tag is 'a\\x00', with a character that cannot be stored; take it out"),
    ("tags", map(str, range(21)), InvalidJob, "tags has 21 texts; at most 20 are allowed"),
    *(
        (name, None, InvalidJobType, f"@job({name}=None): leave the option out, or give it a value")
        for name in ("queue", "priority", "fail_on", "durable", "tags")
    ),
]


def ids(cases: list[tuple[str, Any, type[JobsError], str]]) -> list[str]:
    return [f"{name}-{index}" for index, (name, *_) in enumerate(cases)]


@pytest.mark.parametrize(("name", "value", "error", "said"), BOTH + ONLY_USING, ids=ids(BOTH + ONLY_USING))
def test_using_refuses_a_value_that_makes_no_sense(name: str, value: Any, error: type[JobsError], said: str) -> None:
    with pytest.raises(error) as caught:
        nothing.using(**{name: value})
    assert str(caught.value) == f"{said}."


@pytest.mark.parametrize(("name", "value", "error", "said"), BOTH + ONLY_JOB, ids=ids(BOTH + ONLY_JOB))
def test_job_refuses_a_value_that_makes_no_sense(name: str, value: Any, error: type[JobsError], said: str) -> None:
    with pytest.raises(error) as caught:
        job(**{name: value})
    assert str(caught.value) == f"{said}."


def test_errors_are_also_the_errors_that_python_raises_for_such_values() -> None:
    assert issubclass(InvalidJob, ValueError)
    assert issubclass(InvalidJobType, TypeError)


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidJobType) as caught:
        nothing.using(queeu="mail")  # type: ignore[call-arg]
    assert str(caught.value) == (
        "using() has no option 'queeu'; it has delay, detached, expires, idempotency_key, max_attempts, priority, "
        "queue, run_at, timeout, unique."
    )
    with pytest.raises(InvalidJobType) as caught:
        job(default_timeout=True)(plain)  # type: ignore[call-overload]
    assert str(caught.value) == (
        "@job has no option 'default_timeout'; it has atomic, backoff, durable, fail_on, max_attempts, name, other_databases, "
        "priority, queue, retry_on, tags, takes_context, timeout."
    )


def test_options_are_given_by_keyword() -> None:
    with pytest.raises(InvalidJobType, match=r"^@job takes its options by keyword: @job\(queue='mail'\)\.$"):
        job(plain, queue="mail")  # type: ignore[call-overload]


@pytest.mark.parametrize("together", [True, False])
def test_run_at_and_delay_exclude_each_other(together: bool) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    given: Any = ({"run_at": moment}, {}) if together else ({}, {"run_at": moment})
    with pytest.raises(InvalidJob) as caught:
        nothing.using(**given[1]).using(**given[0], delay=timedelta(seconds=5))
    assert str(caught.value) == "using() has both run_at (2030-01-01T00:00:00+00:00) and delay (5 s); give one."


LATER = datetime(2030, 1, 1, tzinfo=UTC)
NEVER = "the job could never start. Give a later expires, or none."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"unique": "waiting"},
            "using(unique='waiting') says how long an idempotency key holds, and there is none; give idempotency_key as well.",
        ),
        ({"delay": 60, "expires": 30}, f"using() has delay (60 s) not before expires (30 s): {NEVER}"),
        (
            {"delay": 60, "expires": timedelta(minutes=1)},
            f"using() has delay (60 s) not before expires (60 s): {NEVER}",
        ),
        (
            {"run_at": LATER + timedelta(days=1), "expires": LATER},
            "using() has run_at (2030-01-02T00:00:00+00:00) not before expires (2030-01-01T00:00:00+00:00): " + NEVER,
        ),
        (
            {"run_at": LATER, "expires": LATER},
            "using() has run_at (2030-01-01T00:00:00+00:00) not before expires (2030-01-01T00:00:00+00:00): " + NEVER,
        ),
    ],
)
def test_what_makes_no_sense_together_is_refused_by_the_enqueue(options: Any, said: str) -> None:
    for function in (nothing.using(**options), in_steps(options), in_steps(dict(reversed(options.items())))):
        with pytest.raises(InvalidJob) as caught:
            function.enqueue(1)  # gets as far as no database: the mark of this file forbids it
        assert str(caught.value) == said


def in_steps(options: dict[str, Any]) -> Any:
    function: Any = nothing
    for name, value in options.items():
        function = function.using(**{name: value})
    return function


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "waiting", "idempotency_key": "k"},
        {"unique": None},
        {"delay": 30, "expires": 60},
        {"run_at": LATER, "expires": LATER + timedelta(microseconds=1)},
        # Which of these comes first is for the database's clock to say.
        {"run_at": LATER, "expires": 60},
        {"delay": 60, "expires": datetime(2001, 1, 1, tzinfo=UTC)},
    ],
)
def test_what_makes_sense_together_may_be_given_in_any_steps(options: dict[str, Any]) -> None:
    for function in (in_steps(options), in_steps(dict(reversed(options.items())))):
        assert function._using == nothing.using(**options)._using
        function._using.check()


# What using() returns.


def test_using_returns_a_changed_copy_and_leaves_the_job_as_it_was() -> None:
    moment = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    first = nothing.using(queue="mail", priority=5, run_at=moment, idempotency_key="k")
    second = first.using(run_at=None, delay=timedelta(minutes=5), max_attempts=3, timeout=None)
    assert nothing._using == Enqueue()
    assert first._using == Enqueue(
        queue="mail", priority=5, run_at=datetime(2030, 1, 1, 10, tzinfo=UTC), idempotency_key="k", timeout=UNSET
    )
    assert second._using == Enqueue(
        queue="mail", priority=5, delay=300.0, idempotency_key="k", max_attempts=3, timeout=None
    )
    assert first.job_type is second.job_type is nothing.job_type


def test_what_using_returns_is_still_called_as_a_function() -> None:
    assert nothing.using(delay=5)(7) == 7


def test_a_naive_run_at_is_local_time_where_the_project_has_no_time_zones() -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        found = nothing.using(run_at=datetime(2030, 1, 1, 12))._using.run_at
    assert found == datetime(2030, 1, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", -100),
        ("priority", 100),
        ("max_attempts", 1),
        ("timeout", 0.001),
        ("delay", 0),
        ("delay", 315_360_000),
        ("queue", "q" * 100),
        ("queue", "größe-日本.a:b/c"),
        ("idempotency_key", "k" * 255),
        ("idempotency_key", " "),
        ("idempotency_key", "jobs:1"),
        ("expires", 0.001),
        ("expires", 315_360_000),
        ("unique", "window"),
    ],
)
def test_values_at_the_limits_are_taken(name: str, value: Any) -> None:
    assert getattr(nothing.using(**{name: value})._using, name) == value


def test_tags_are_kept_once_each_in_their_order() -> None:
    assert Define.read({"tags": ["b", "a", "b", "t" * 255]}).tags == ("b", "a", "t" * 255)
    assert Define.read({"tags": map(str, range(20))}).tags == tuple(map(str, range(20)))
    assert Define.read({}).tags == ()
