"""Storing a job, on each database: what is refused before anything is written, and what is stored."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import override_settings
from django.utils.translation import gettext_lazy

from django_jobs import Context, InvalidJob, JobsError, job
from django_jobs.engines.base import ClaimOrder
from django_jobs.exceptions import InvalidJobType
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.app.models import Effect

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = pytest.mark.django_db(databases="__all__")


@job
def take(value: Any = None, *rest: Any, option: Any = None, **others: Any) -> None: ...


@job
def strict(first: int, /, second: int, *, third: int = 3) -> None: ...


@job(takes_context=True)  # type: ignore[arg-type]
def with_context(context: Context, number: int = 0, **others: Any) -> None: ...


@job(queue="mail", priority=7, max_attempts=3, timeout=30)
def with_options() -> None: ...


@job(timeout=None)
def endless() -> None: ...


@contextmanager
def refused(engine: Engine, error: type[JobsError], said: str) -> Iterator[None]:
    """Expect an error that says this, nothing written, and a transaction that goes on."""
    with transaction.atomic(using=engine.alias):
        before = nothing.enqueue(1)
        with pytest.raises(error) as caught:
            yield
        after = nothing.enqueue(2)
    assert str(caught.value) == said
    assert list(Job.objects.using(engine.alias).order_by("id")) == [before, after]


def stored(made: Job) -> dict[str, Any]:
    """Return a job's row without the columns that differ from job to job."""
    row = Job.objects.using(made._state.db).filter(pk=made.pk).values().get()
    return {name: value for name, value in row.items() if name not in ("id", "created_at", "run_at")}


# Arguments that are refused.


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (
            "nothing",
            (1, 2),
            {},
            "The arguments do not fit tests.app.jobs.nothing(number: 'int' = 0) -> 'int': too many positional arguments.",
        ),
        (
            "nothing",
            (),
            {"numbr": 1},
            "The arguments do not fit tests.app.jobs.nothing(number: 'int' = 0) -> 'int': "
            "got an unexpected keyword argument 'numbr'.",
        ),
        (
            "strict",
            (),
            {},
            "The arguments do not fit tests.test_enqueue.strict(first: 'int', /, second: 'int', *, third: 'int' = 3) "
            "-> 'None': missing a required argument: 'first'.",
        ),
        (
            "strict",
            (1, 2),
            {"second": 2},
            "The arguments do not fit tests.test_enqueue.strict(first: 'int', /, second: 'int', *, third: 'int' = 3) "
            "-> 'None': multiple values for argument 'second'.",
        ),
        (
            "with_context",
            (1, 2),
            {},
            "The arguments do not fit tests.test_enqueue.with_context(context: 'Context', number: 'int' = 0, "
            "**others: 'Any') -> 'None': too many positional arguments.",
        ),
        (
            "with_context",
            (),
            {"context": 1},
            "The arguments do not fit tests.test_enqueue.with_context(context: 'Context', number: 'int' = 0, "
            "**others: 'Any') -> 'None': multiple values for argument 'context'.",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(
    engine: Engine, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    called: Any = {"nothing": nothing, "strict": strict, "with_context": with_context}[function]
    with refused(engine, InvalidJobType, f"{said} Nothing was enqueued."):
        called.enqueue(*args, **kwargs)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Asks:
    """Its repr() sends a statement that fails, as that of a model may."""

    def __repr__(self) -> str:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")
        return ""


Point = namedtuple("Point", "x y")
NUMBER = uuid.UUID(int=7)
PLAIN_REMEDY = "pass text, numbers, lists and dicts only"

NOT_JSON: list[tuple[Any, str]] = [
    ((1, 2), "a tuple ((1, 2)), not JSON; pass a list"),
    (Point(1, 2), "a Point (Point(x=1, y=2)), not JSON; pass a list"),
    ((Job(), 1), "a tuple, not JSON; pass a list"),
    ({1}, "a set ({1}), not JSON; pass a list, for example sorted(value)"),
    (frozenset({1}), "a frozenset (frozenset({1})), not JSON; pass a list, for example sorted(value)"),
    (b"x", "a bytes (b'x'), not JSON; pass text, for example base64.b64encode(value).decode()"),
    (bytearray(b"x"), "a bytearray, not JSON; pass text, for example base64.b64encode(value).decode()"),
    (memoryview(b"x"), "a memoryview, not JSON; pass text, for example base64.b64encode(value).decode()"),
    (
        dt.datetime(2030, 1, 1),
        "a datetime (datetime.datetime(2030, 1, 1, 0, 0)), not JSON; pass value.isoformat()",
    ),
    (dt.date(2030, 1, 1), "a date (datetime.date(2030, 1, 1)), not JSON; pass value.isoformat()"),
    (dt.time(12), "a time (datetime.time(12, 0)), not JSON; pass value.isoformat()"),
    (
        dt.timedelta(seconds=5),
        "a timedelta (datetime.timedelta(seconds=5)), not JSON; pass value.total_seconds()",
    ),
    (Decimal("1.10"), "a Decimal (Decimal('1.10')), not JSON; pass str(value)"),
    (NUMBER, f"a UUID ({NUMBER!r}), not JSON; pass str(value)"),
    (Job(pk=5), "a Job, not JSON; pass value.pk and read the row in the job"),
    (Effect.objects.all(), "a QuerySet, not JSON; pass the primary keys as a list"),
    (gettext_lazy("job"), "a __proxy__, not JSON; pass str(value)"),
    (1 + 2j, "a complex ((1+2j)), not JSON; pass [value.real, value.imag]"),
    (MappingProxyType({}), "a mappingproxy, not JSON; pass dict(value)"),
    (object(), f"a object, not JSON; {PLAIN_REMEDY}"),
    (Unprintable(), f"a Unprintable, not JSON; {PLAIN_REMEDY}"),
    (Asks(), f"a Asks, not JSON; {PLAIN_REMEDY}"),
    (int, f"a type (<class 'int'>), not JSON; {PLAIN_REMEDY}"),
    (..., f"a ellipsis, not JSON; {PLAIN_REMEDY}"),
    (iter([]), f"a list_iterator, not JSON; {PLAIN_REMEDY}"),
    ({1: 2}, "has the key 1; JSON keys are text: pass str(key)"),
    ({None: 2}, "has the key None; JSON keys are text: pass str(key)"),
    ({("a", 1): 2}, "has the key ('a', 1); JSON keys are text: pass str(key)"),
]

NOT_STORABLE: list[tuple[Any, str]] = [
    (float("nan"), "is nan, which JSON has no word for; pass None or text"),
    (float("inf"), "is inf, which JSON has no word for; pass None or text"),
    (float("-inf"), "is -inf, which JSON has no word for; pass None or text"),
    ("a\x00b", "has a NUL character at position 1; take it out, or pass base64 text"),
    ("ab\ud800", "has a lone surrogate at position 2; take it out, or pass base64 text"),
    ("\udfff", "has a lone surrogate at position 0; take it out, or pass base64 text"),
    (10**4300, "is a whole number of over 4,200 digits; pass it as text"),
]


def said_of(place: str, what: str) -> str:
    return f"tests.test_enqueue.take: {place} {'is ' if what.startswith('a ') else ''}{what}."


@pytest.mark.parametrize(("value", "said"), NOT_JSON, ids=[type(value).__name__ for value, _ in NOT_JSON])
def test_what_is_not_json_is_refused_with_what_to_pass_instead(engine: Engine, value: Any, said: str) -> None:
    with refused(engine, InvalidJobType, said_of("argument 'value'", said)):
        take.enqueue(value)


@pytest.mark.parametrize(("value", "said"), NOT_STORABLE, ids=[repr(said)[:20] for _, said in NOT_STORABLE])
def test_what_cannot_be_stored_is_refused_with_what_to_do(engine: Engine, value: Any, said: str) -> None:
    with refused(engine, InvalidJob, said_of("argument 'value'", said)):
        take.enqueue(value)


@pytest.mark.parametrize(
    ("args", "kwargs", "place"),
    [
        (({1},), {}, "argument 'value'"),
        ((), {"value": {1}}, "argument 'value'"),
        ((0, 0, {1}), {}, "argument *rest[1]"),
        ((), {"option": {1}}, "argument 'option'"),
        ((), {"other": {1}}, "argument 'other'"),
        (([0, {"a": [{1}]}],), {}, "argument 'value'[1]['a'][0]"),
    ],
)
def test_the_error_names_the_place(engine: Engine, args: tuple[Any, ...], kwargs: dict[str, Any], place: str) -> None:
    said = "a set ({1}), not JSON; pass a list, for example sorted(value)"
    with refused(engine, InvalidJobType, said_of(place, said)):
        take.enqueue(*args, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {"value": {"a\x00": 1}},
            "a key of tests.test_enqueue.take: argument 'value' has a NUL character at position 1",
        ),
        ({"\ud800": 1}, "tests.test_enqueue.take: the name of an argument has a lone surrogate at position 0"),
    ],
)
def test_keys_that_cannot_be_stored_are_refused(engine: Engine, kwargs: dict[str, Any], said: str) -> None:
    with refused(engine, InvalidJob, f"{said}; take it out, or pass base64 text."):
        take.enqueue(**kwargs)


def nest(depth: int, inner: Any = None) -> Any:
    for level in range(depth):
        inner = [inner] if level % 2 else {"k": inner}
    return inner


def test_nesting_over_a_hundred_is_refused(engine: Engine) -> None:
    circle: list[Any] = []
    circle.append(circle)
    place = "tests.test_enqueue.take: argument 'value'"
    with refused(engine, InvalidJob, f"{place}{'[0]' * 6}[... is nested over 100 deep; pass flatter data."):
        take.enqueue(circle)
    with pytest.raises(InvalidJob, match="is nested over 100 deep; pass flatter data"):
        take.enqueue(nest(101))


def test_nesting_of_a_hundred_is_stored(engine: Engine) -> None:
    made = take.enqueue(nest(100, "x"))
    assert made.refresh().args == [nest(100, "x")]


def test_arguments_over_the_limit_are_refused_and_those_at_it_are_stored(engine: Engine) -> None:
    # {"args":["ä"],"kwargs":{}} has 25 bytes beside the text, which counts in bytes and not in characters.
    with override_settings(DJANGO_JOBS={"MAX_PAYLOAD_BYTES": 45}):
        said = (
            "The arguments of tests.test_enqueue.take are 47 bytes of JSON; MAX_PAYLOAD_BYTES allows 45. "
            "Store the data elsewhere and pass where."
        )
        with refused(engine, InvalidJob, said):
            take.enqueue("ä" * 11)
        assert take.enqueue("ä" * 10).refresh().args == ["ä" * 10]


# Options that are refused: each in tests/test_options.py; here that nothing comes of it.


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"delay": 10**400}, InvalidJob, f"delay is 1{'0' * 76}...; give seconds from 0 to 315360000 (ten years)."),
        ({"priority": True}, InvalidJobType, "priority is True; give a whole number from -100 to 100."),
        (
            {"run_at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC), "delay": 5},
            InvalidJob,
            "using() has both run_at (2030-01-01T00:00:00+00:00) and delay (5 s); give one.",
        ),
        (
            {"queue": "a,b"},
            InvalidJob,
            "queue: the queue name 'a,b' has a comma, a space or a control character; leave it out.",
        ),
        (
            {"idempotency_key": "job:5"},
            InvalidJob,
            "idempotency_key is 'job:5'; keys beginning with 'job:' are reserved, choose another.",
        ),
    ],
)
def test_a_refused_option_leaves_the_transaction_usable(
    engine: Engine, options: Any, error: type[JobsError], said: str
) -> None:
    with refused(engine, error, said):
        nothing.using(**options).enqueue(5)


def test_enqueue_in_a_running_event_loop_is_refused_in_favour_of_aenqueue(engine: Engine) -> None:
    async def main() -> None:
        nothing.enqueue(5)

    said = "enqueue() was called inside a running event loop; use `await ... .aenqueue(...)`."
    with refused(engine, InvalidJobType, said):
        asyncio.run(main())


# What is stored.


def test_a_job_is_stored_with_its_defaults_and_returned_as_stored(engine: Engine) -> None:
    made = take.enqueue(1, "b", option=[2])
    assert stored(made) == {
        "type": "tests.test_enqueue.take",
        "queue": "default",
        "priority": 0,
        "payload": {"args": [1, "b"], "kwargs": {"option": [2]}},
        "idempotency_key": None,
        "status": "ready",
        "parked": None,
        "expires_at": None,
        "timeout": 900.0,
        "attempts": 0,
        "max_attempts": 8,
        "losses": 0,
        "token": 0,
        "locked_by": None,
        "locked_until": None,
        "last_error": "",
        "history": [],
        "progress": None,
        "result": None,
        "meta": {},
        "schedule": None,
        "slot": None,
        "started_at": None,
        "last_started_at": None,
        "finished_at": None,
    }
    assert made.run_at == made.created_at
    assert not made.get_deferred_fields()
    fields = [field.attname for field in Job._meta.concrete_fields]
    reread = Job.objects.using(engine.alias).get(pk=made.pk)
    assert {name: getattr(made, name) for name in fields} == {name: getattr(reread, name) for name in fields}


CHOSEN = ("queue", "priority", "max_attempts", "timeout")


@pytest.mark.parametrize(
    ("function", "using", "expected"),
    [
        (nothing, {}, ("default", 0, 2, 60.0)),
        (with_options, {}, ("mail", 7, 3, 30.0)),
        (endless, {}, ("default", 0, 2, None)),
        (with_options, {"priority": 0, "timeout": None}, ("mail", 0, 3, None)),
        (endless, {"timeout": 5}, ("default", 0, 2, 5.0)),
        (
            with_options,
            {"queue": "other", "priority": -100, "max_attempts": 1, "timeout": dt.timedelta(hours=1)},
            ("other", -100, 1, 3600.0),
        ),
    ],
)
def test_using_wins_over_the_job_and_the_job_over_the_settings(
    engine: Engine, function: Any, using: Any, expected: tuple[Any, ...]
) -> None:
    with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 2, "DEFAULT_TIMEOUT": 60}):
        row = stored(function.using(**using).enqueue())
    assert tuple(row[name] for name in CHOSEN) == expected


def test_positional_arguments_stay_positional(engine: Engine) -> None:
    assert strict.enqueue(1, 2).payload == {"args": [1, 2], "kwargs": {}}
    assert strict.enqueue(1, second=2).payload == {"args": [1], "kwargs": {"second": 2}}
    assert with_context.enqueue(5, other=6).payload == {"args": [5], "kwargs": {"other": 6}}
    assert take.enqueue().payload == {"args": [], "kwargs": {}}


def test_an_argument_may_be_called_self(engine: Engine) -> None:
    assert take.enqueue(self=1).payload == {"args": [], "kwargs": {"self": 1}}


class Whole(int):
    pass


ODD_VALUES: list[Any] = [
    [None, True, False, 0, 1, -1, 1.0, 0.0],
    [0.1, -1e-7, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308],
    [1e15, 1e16, 1e22, 1e23, -1e23, 2.0**53, 123456789012345680.0, 1.5e300],
    [2**53 + 1, 2**63, -(2**64), 10**100, 10**4200, -(10**4200)],
    ["", " ", "ß", "日本", "😀", "\u2028\u2029", "\x01\x1f\x7f\x80", "\ufeff", "\uffff", "e\u0301", "\u202e"],
    ['"', "\\", "'", "%s %% %(a)s", "\\u0000", "\\x00", "1e+23", '"1e+23"', '\\"1e+23', "\\\\", "\t\r\n", "$1", "?"],
    [[], {}, [[]], [{}], {"": {"": []}}, {"args": [], "kwargs": {}}],
    [{"b": 1, "a": 2}, {"1": 1}, {"ß": "ß", '"': "\\", "k" * 300: 1, "1e+5": 1e25}],
    [list(range(1000)), "x" * 10_000, nest(90)],
]


@pytest.mark.parametrize("values", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_what_is_stored_is_what_was_passed(engine: Engine, values: list[Any]) -> None:
    take.enqueue(*values, option=values)
    order = ClaimOrder(locked_by="w:1", lease=30, limit=1, queues=None, types=(take.name,))
    ((claimed,), _) = engine.claim(order)
    assert as_text(json.loads(claimed.payload)) == as_text({"args": values, "kwargs": {"option": values}})


def as_text(value: Any) -> str:
    # 1, 1.0 and True are equal in Python. PostgreSQL does not keep the order of keys.
    return json.dumps(value, sort_keys=True)


def test_subclasses_of_json_kinds_are_stored_as_their_kind(engine: Engine) -> None:
    made = take.enqueue(Whole(5), OrderedDict(b=1), Job.Status.DONE)
    assert made.refresh().args == [5, {"b": 1}, "done"]


# When it is due.


def test_a_delay_counts_from_the_statement_and_not_from_the_start_of_the_transaction(engine: Engine) -> None:
    if engine.name == "sqlite":
        statement, pause = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')", None
    else:
        statement, pause = "SELECT statement_timestamp()", "SELECT pg_sleep(0.05)"
    with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        cursor.execute("SELECT 1")
        if pause:
            cursor.execute(pause)
        cursor.execute(statement)
        before = cursor.fetchone()[0]
        made = nothing.using(delay=dt.timedelta(minutes=5)).enqueue()
    if isinstance(before, str):
        before = dt.datetime.fromisoformat(before).replace(tzinfo=dt.UTC)
    assert dt.timedelta(0) <= made.created_at - before < dt.timedelta(seconds=5)
    assert abs(made.run_at - made.created_at - dt.timedelta(minutes=5)) <= dt.timedelta(milliseconds=2)


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ],
)
def test_a_run_at_is_stored_as_given(engine: Engine, moment: dt.datetime) -> None:
    made = nothing.using(run_at=moment).enqueue()
    assert (made.run_at, made.refresh().run_at) == (moment, moment)


def test_a_run_at_in_the_past_is_due_and_one_in_the_future_is_not(engine: Engine) -> None:
    past = nothing.using(run_at=dt.datetime(1, 1, 1, tzinfo=dt.UTC)).enqueue()
    nothing.using(run_at=dt.datetime(9999, 12, 31, tzinfo=dt.UTC)).enqueue()
    nothing.using(delay=0.5).enqueue()
    now = nothing.enqueue()
    assert list(Job.objects.using(engine.alias).due().order_by("id")) == [past, now]


# Transactions.


def test_a_committed_job_is_there_and_a_rolled_back_one_never_was(engine: Engine) -> None:
    keyed = nothing.using(idempotency_key="k")
    with transaction.atomic(using=engine.alias):
        kept = nothing.enqueue(1)
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(2)
            keyed.enqueue(3)
            transaction.set_rollback(True, using=engine.alias)
        again = keyed.enqueue(4)
    with transaction.atomic(using=engine.alias):
        nothing.enqueue(5)
        transaction.set_rollback(True, using=engine.alias)
    assert [job.args for job in Job.objects.using(engine.alias).order_by("id")] == [[1], [4]]
    assert list(Job.objects.using(engine.alias).order_by("id")) == [kept, again]


def test_an_enqueue_is_part_of_the_transaction_on_the_jobs_alias(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        Effect.objects.using(engine.alias).create(key="before")
        nothing.enqueue()
        transaction.set_rollback(True, using=engine.alias)
    assert (Effect.objects.using(engine.alias).count(), Job.objects.using(engine.alias).count()) == (0, 0)


def test_aenqueue_does_what_enqueue_does(engine: Engine) -> None:
    async def main() -> list[Job]:
        return [
            await with_options.aenqueue(),
            await take.using(priority=3, idempotency_key="k").aenqueue(1, option=2),
            await take.using(priority=3, idempotency_key="k").aenqueue(1, option=2),
        ]

    first, second, third = async_to_sync(main)()
    assert stored(first) == stored(with_options.enqueue())
    assert (stored(second)["payload"], stored(second)["priority"]) == ({"args": [1], "kwargs": {"option": 2}}, 3)
    assert second == third


def test_aenqueue_refuses_what_enqueue_refuses(engine: Engine) -> None:
    said = said_of("argument 'value'", "a set ({1}), not JSON; pass a list, for example sorted(value)")
    with refused(engine, InvalidJobType, said):
        async_to_sync(take.aenqueue)({1})
