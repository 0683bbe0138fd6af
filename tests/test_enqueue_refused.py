"""What is refused before anything is written, on each database: the transaction goes on."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections import namedtuple
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.test import override_settings
from django.utils.translation import gettext_lazy

from django_jobs import InvalidJob, JobsError
from django_jobs.exceptions import InvalidJobType
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.enqueues import doubled, nest, refused, said_of, strict, take, with_context

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = pytest.mark.django_db(databases="__all__")


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
            "The arguments do not fit tests.enqueues.strict(first: 'int', /, second: 'int', *, third: 'int' = 3) "
            "-> 'None': missing a required argument: 'first'.",
        ),
        (
            "strict",
            (1, 2),
            {"second": 2},
            "The arguments do not fit tests.enqueues.strict(first: 'int', /, second: 'int', *, third: 'int' = 3) "
            "-> 'None': multiple values for argument 'second'.",
        ),
        (
            "with_context",
            (1, 2),
            {},
            "The arguments do not fit tests.enqueues.with_context(context: 'Context', number: 'int' = 0, "
            "**others: 'Any') -> 'None': too many positional arguments.",
        ),
        (
            "with_context",
            (),
            {"context": 1},
            "The arguments do not fit tests.enqueues.with_context(context: 'Context', number: 'int' = 0, "
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
        "a datetime (2030-01-01 00:00:00), not JSON; pass value.isoformat()",
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
            "a key of tests.enqueues.take: argument 'value' has a NUL character at position 1",
        ),
        ({"\ud800": 1}, "tests.enqueues.take: the name of an argument has a lone surrogate at position 0"),
    ],
)
def test_keys_that_cannot_be_stored_are_refused(engine: Engine, kwargs: dict[str, Any], said: str) -> None:
    with refused(engine, InvalidJob, f"{said}; take it out, or pass base64 text."):
        take.enqueue(**kwargs)


def test_nesting_over_a_hundred_is_refused(engine: Engine) -> None:
    circle: list[Any] = []
    circle.append(circle)
    place = "tests.enqueues.take: argument 'value'" + "[0]" * 100
    with refused(engine, InvalidJob, f"{place[:120]}... is nested over 100 deep; pass flatter data."):
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
            "The arguments of tests.enqueues.take are 47 bytes of JSON; MAX_PAYLOAD_BYTES allows 45. "
            "Store the data elsewhere and pass where."
        )
        with refused(engine, InvalidJob, said):
            take.enqueue("ä" * 11)
        assert take.enqueue("ä" * 10).refresh().args == ["ä" * 10]


@pytest.mark.parametrize("args", [(doubled(60),), ("a" * 500_000, ["a" * 600_000])], ids=["doubled", "long"])
def test_arguments_that_are_too_large_for_sure_are_not_even_written(engine: Engine, args: tuple[Any, ...]) -> None:
    said = (
        "The arguments of tests.enqueues.take are over 1,048,576 bytes of JSON; MAX_PAYLOAD_BYTES allows 1,048,576. "
        "Store the data elsewhere and pass where."
    )
    with refused(engine, InvalidJob, said):
        take.enqueue(*args)


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
            {"unique": "unfinished"},
            InvalidJob,
            "using(unique='unfinished') says how long an idempotency key holds, and there is none; "
            "give idempotency_key as well.",
        ),
        (
            {"delay": 5, "expires": 5},
            InvalidJob,
            "using() has delay (5 s) not before expires (5 s): the job could never start. "
            "Give a later expires, or none.",
        ),
        ({"expires": 0}, InvalidJob, "expires is 0; give seconds over 0, a timedelta, or a datetime."),
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
