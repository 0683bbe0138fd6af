"""Many jobs at once, on each database: what is stored, what is refused, and in how many statements."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import Call, IdempotencyConflict, InvalidJob, JobsError
from django_jobs.exceptions import InvalidJobType
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others
from tests.enqueues import jobs, keyed, refused, stored, take, with_options

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone

LATER = dt.datetime(2040, 1, 1, 12, tzinfo=dt.UTC)
MANY_OPTIONS: list[dict[str, Any]] = [
    {},
    {"queue": "mail", "priority": -5, "max_attempts": 1, "timeout": None},
    {"run_at": LATER, "expires": LATER + dt.timedelta(days=1)},
    {"timeout": 0.5},
    {"idempotency_key": "a"},
    {"idempotency_key": "b", "unique": "unfinished"},
    {"idempotency_key": "c", "unique": "waiting", "priority": 100},
]


def key(number: int) -> Any:
    return take.using(idempotency_key=f"k{number:05}")


def values(engine: Engine, ids: list[int]) -> list[Any]:
    """Return the first argument of each job, in the order of the ids."""
    found = Job.objects.using(engine.alias).in_bulk(ids)
    return [found[pk].args[0] for pk in ids]


# What is stored.


@pytest.mark.parametrize("function", [take, with_options], ids=["take", "with_options"])
def test_each_job_is_stored_as_enqueue_stores_it(engine: Engine, function: Any) -> None:
    arguments: list[Any] = [["ß", 1.5, {"a": [None]}], ["%s", '"\\'], [10**30, 1e23]] if function is take else [[]]
    using = [(options, arguments[n % len(arguments)]) for n, options in enumerate(MANY_OPTIONS)]
    ids = function.enqueue_many([function.using(**options).call(*args) for options, args in using])
    many = [stored(Job.objects.using(engine.alias).get(pk=pk)) for pk in ids]
    later = [job.pk for job in jobs(engine) if job.run_at == LATER]
    Job.objects.using(engine.alias).all().delete()
    assert many == [stored(function.using(**options).enqueue(*args)) for options, args in using]
    assert later == [ids[2]]


def test_durations_count_from_the_databases_clock(engine: Engine) -> None:
    (pk,) = nothing.enqueue_many([nothing.using(delay=60, expires=dt.timedelta(minutes=5)).call()])
    made = Job.objects.using(engine.alias).get(pk=pk)
    assert made.expires_at is not None
    assert abs(made.run_at - made.created_at - dt.timedelta(seconds=60)) < dt.timedelta(seconds=1)
    assert abs(made.expires_at - made.created_at - dt.timedelta(minutes=5)) < dt.timedelta(seconds=1)


def test_ids_come_in_the_order_of_the_calls_whatever_their_keys(engine: Engine) -> None:
    calls = [(key(9 - n) if n % 3 else take).call(n) for n in range(10)]
    ids = take.enqueue_many(calls)
    assert values(engine, ids) == list(range(10))
    assert sorted(ids) == [job.pk for job in jobs(engine)]


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda calls: (call for call in calls)])
def test_calls_may_come_in_any_iterable(engine: Engine, kind: Callable[[Any], Any]) -> None:
    assert values(engine, take.enqueue_many(kind([take.call(1), keyed.call(2)]))) == [1, 2]


def test_no_calls_make_no_jobs(engine: Engine) -> None:
    assert take.enqueue_many([]) == []
    assert jobs(engine) == []


def test_options_of_the_function_are_those_of_the_calls_that_do_not_have_them(engine: Engine) -> None:
    base = take.using(queue="bulk", delay=60, timeout=5, priority=3)
    calls = [
        take.call(0),
        take.using(queue="other", timeout=None, priority=0).call(1),
        take.using(run_at=LATER).call(2),
        base.using(queue="own").call(3),
    ]
    found = Job.objects.using(engine.alias).in_bulk(base.enqueue_many(calls))
    rows = [found[pk] for pk in sorted(found)]
    assert [(row.queue, row.timeout, row.priority) for row in rows] == [
        ("bulk", 5.0, 3),
        ("other", None, 0),
        ("bulk", 5.0, 3),
        ("own", 5.0, 3),
    ]
    assert [row.run_at == LATER for row in rows] == [False, False, True, False]
    assert rows[0].run_at > rows[0].created_at


def test_a_call_with_a_time_of_its_own_has_not_the_functions(engine: Engine) -> None:
    ids = take.using(run_at=LATER).enqueue_many([take.using(delay=5).call(), take.call()])
    found = Job.objects.using(engine.alias).in_bulk(ids)
    assert [found[pk].run_at == LATER for pk in ids] == [False, True]
    (pk,) = take.using(delay=60).enqueue_many([take.using(run_at=LATER, expires=30).call()])
    assert Job.objects.using(engine.alias).get(pk=pk).run_at == LATER


def test_aenqueue_many_does_what_enqueue_many_does(engine: Engine) -> None:
    def calls() -> Iterator[Call[Any]]:
        list(Job.objects.using(engine.alias).all())  # may use the database
        yield take.call(1)
        yield keyed.call(2)

    async def main() -> list[int]:
        return await take.aenqueue_many(calls())

    assert values(engine, async_to_sync(main)()) == [1, 2]


# Keys.


def test_of_calls_with_one_key_the_first_is_stored_and_all_get_its_id(engine: Engine) -> None:
    calls = [keyed.call(1), take.call(0), keyed.using(priority=5).call(1.0), keyed.call(1)]
    ids = take.enqueue_many(calls)
    assert ids == [ids[0], ids[1], ids[0], ids[0]]
    assert [(job.pk, job.priority) for job in jobs(engine)] == [(pk, 0) for pk in sorted({ids[0], ids[1]})]


def test_a_key_that_is_taken_by_the_same_call_gives_its_job(engine: Engine) -> None:
    holders = [key(n).enqueue(n) for n in (1, 3)]
    ids = take.enqueue_many([key(n).call(n) for n in (3, 2, 1)])
    assert (ids[0], ids[2]) == (holders[1].pk, holders[0].pk)
    assert values(engine, ids) == [3, 2, 1]
    assert take.enqueue_many([key(n).call(n) for n in (1, 2, 3)]) == ids[::-1]
    assert len(jobs(engine)) == 3


def test_a_key_of_another_call_is_a_conflict_that_names_the_call(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        holder = keyed.enqueue(1)
        with pytest.raises(IdempotencyConflict) as caught:
            take.enqueue_many([take.call(0), key(1).call(1), keyed.call(2)])
        after = nothing.enqueue()
    assert caught.value.job_id == holder.pk
    assert str(caught.value) == (
        f"calls[2]: The idempotency key 'k' belongs to job {holder.pk}, tests.enqueues.take "
        '{"args":[1],"kwargs":{}}; it cannot also stand for tests.enqueues.take {"args":[2],"kwargs":{}}. '
        "Use another key for another call."
    )
    assert jobs(engine) == [holder, after]


def test_a_key_of_another_type_is_a_conflict(engine: Engine) -> None:
    nothing.using(idempotency_key="k").enqueue(1)
    with pytest.raises(IdempotencyConflict, match=r"^calls\[0\]: .* belongs to job \d+, tests\.app\.jobs\.nothing "):
        take.enqueue_many([keyed.call(1)])


def test_two_calls_under_one_key_are_a_conflict(engine: Engine) -> None:
    said = (
        "calls[3]: The idempotency key 'k' belongs to calls[1], tests.enqueues.take "
        '{"args":[1],"kwargs":{}}; it cannot also stand for tests.enqueues.take {"args":[true],"kwargs":{}}. '
        "Use another key for another call."
    )
    with refused(engine, IdempotencyConflict, said):
        take.enqueue_many([take.call(0), keyed.call(1), keyed.call(1), keyed.call(True)])


# What is refused: nothing is stored, and the transaction goes on.

HOW = "give it calls, as in take.enqueue_many([take.call(...), ...])"
BAD_CALLS: list[tuple[Callable[[], Any], type[JobsError], str]] = [
    (lambda: take.call({1}), InvalidJobType, "tests.enqueues.take: argument 'value' is a set ({1}), not JSON; "),
    (lambda: take.call(float("nan")), InvalidJob, "tests.enqueues.take: argument 'value' is nan, "),
    (lambda: take.call("\x00"), InvalidJob, "tests.enqueues.take: argument 'value' has a NUL character at position 0"),
    (lambda: take.call("a" * 2**21), InvalidJob, "The arguments of tests.enqueues.take are over 1,048,576 bytes of "),
    (
        lambda: nothing.call(1),
        InvalidJobType,
        "it is a call of tests.app.jobs.nothing, and enqueue_many() is that of tests.enqueues.take; "
        "enqueue the calls of each job by its own.",
    ),
    (lambda: (1, 2), InvalidJobType, f"(1, 2) is no call; {HOW}."),
    (lambda: take, InvalidJobType, f"<JobFunction> is no call; {HOW}."),
    (lambda: None, InvalidJobType, f"None is no call; {HOW}."),
    (
        lambda: take.using(unique="waiting").call(),
        InvalidJob,
        "using(unique='waiting') says how long an idempotency key holds, and there is none; give idempotency_key as well.",
    ),
    (
        lambda: take.using(delay=9, expires=5).call(),
        InvalidJob,
        "using() has delay (9 s) not before expires (5 s): the job could never start. Give a later expires, or none.",
    ),
]


@pytest.mark.parametrize("case", range(len(BAD_CALLS)))
@pytest.mark.parametrize("before", [0, 1, 1_500], ids=["first", "second", "in the second part"])
def test_a_bad_call_is_named_and_nothing_is_stored(engine: Engine, case: int, before: int) -> None:
    bad, error, said = BAD_CALLS[case]
    good = [take.call(1), key(1).call(1)]
    with transaction.atomic(using=engine.alias):
        first = nothing.enqueue(1)
        with pytest.raises(error) as caught:
            take.enqueue_many(iter([*(good[n % 2] for n in range(before)), bad(), *good]))
        second = nothing.enqueue(2)
    assert str(caught.value).startswith(f"calls[{before}]: {said}")
    assert jobs(engine) == [first, second]


def test_arguments_that_do_not_fit_are_named(engine: Engine) -> None:
    said = (
        "calls[1]: The arguments do not fit tests.app.jobs.nothing(number: 'int' = 0) -> 'int': "
        "got an unexpected keyword argument 'numbr'. Nothing was enqueued."
    )
    with refused(engine, InvalidJobType, said):
        nothing.enqueue_many([nothing.call(1), nothing.call(numbr=1)])  # type: ignore[call-arg]


@pytest.mark.parametrize(("given", "shown"), [(5, "5"), (None, "None"), (take.call(1), "<Call>")])
def test_what_is_no_iterable_is_refused(engine: Engine, given: Any, shown: str) -> None:
    with refused(engine, InvalidJobType, f"enqueue_many() was given {shown}; {HOW}."):
        take.enqueue_many(given)


def test_an_error_of_the_iterable_is_the_callers_own(engine: Engine) -> None:
    def calls() -> Iterator[Call[Any]]:
        for number in range(1_500):
            yield take.call(number)
        raise LookupError("no more")

    with transaction.atomic(using=engine.alias):
        before = nothing.enqueue()
        with pytest.raises(LookupError, match="no more"):
            take.enqueue_many(calls())
        after = nothing.enqueue()
    assert jobs(engine) == [before, after]


def test_in_a_running_event_loop_it_is_refused_in_favour_of_aenqueue_many(engine: Engine) -> None:
    async def main() -> None:
        take.enqueue_many([take.call()])

    said = "enqueue_many() was called inside a running event loop; use `await ... .aenqueue_many(...)`."
    with refused(engine, InvalidJobType, said):
        asyncio.run(main())


@beside_others
def test_without_a_transaction_all_are_stored_or_none(engine: Engine) -> None:
    with pytest.raises(InvalidJobType, match=r"^calls\[1001\]: "):
        take.enqueue_many([*[take.call(1)] * 1_001, take.call({1})])
    assert jobs(engine) == []
    assert not connections[engine.alias].in_atomic_block
    ids = take.enqueue_many([take.call(1)] * 1_001)
    assert [job.pk for job in jobs(engine)] == sorted(ids)


@beside_others
def test_a_transaction_on_another_database_alone_is_refused_unless_detached(engine: Engine) -> None:
    (other,) = {"default", "lite"} - {engine.alias}
    detached = take.using(detached=True)
    with transaction.atomic(using=other):
        with pytest.raises(InvalidJob, match=rf"^calls\[1\]: A transaction is open on the database '{other}' and none"):
            take.enqueue_many([detached.call(0), take.call(0)])
        kept = take.enqueue_many([detached.call(1), detached.call(2)])
        kept += detached.enqueue_many([take.call(3)])
        with transaction.atomic(using=engine.alias):
            kept += take.enqueue_many([take.call(4)])
    assert [job.pk for job in jobs(engine)] == kept


# Statements and memory.


def inserts(engine: Engine, calls: Any) -> int:
    """Return how many INSERTs PostgreSQL was sent."""
    with CaptureQueriesContext(connections[engine.alias]) as captured:
        take.enqueue_many(calls)
    return sum("INSERT INTO django_jobs_job" in query["sql"] for query in captured.captured_queries)


@pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)
def test_a_thousand_jobs_are_one_statement_unless_their_arguments_are_large(engine: Engine) -> None:
    assert inserts(engine, [take.call(1)] * 1_000) == 1
    assert inserts(engine, [take.call(1)] * 1_001) == 2
    assert inserts(engine, [key(n).call(n) for n in range(2_500)]) == 3
    assert inserts(engine, [key(n).call(n) for n in range(2_500)]) == 3
    assert inserts(engine, [take.call("x" * 1_000_000)] * 9) == 3
    assert len(jobs(engine)) == 1_000 + 1_001 + 2_500 + 9


def test_calls_without_a_key_are_stored_while_they_are_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    insert, taken, behind = engine.inserting, [0], []

    def inserting(new: Any) -> Any:
        behind.append(taken[0] - len(new))
        taken[0] -= len(new)
        return insert(new)

    def calls() -> Iterator[Call[Any]]:
        for number in range(5_000):
            taken[0] += 1
            yield take.call(number)

    monkeypatch.setattr(engine, "inserting", inserting)
    assert values(engine, take.enqueue_many(calls())) == list(range(5_000))
    assert len(behind) == 6
    assert max(behind) <= 1_000


def test_the_iterable_may_read_the_database_and_enqueue(engine: Engine) -> None:
    rows = [nothing.enqueue(number) for number in range(3)]

    def calls() -> Iterator[Call[Any]]:
        for row in Job.objects.using(engine.alias).filter(type=nothing.name).iterator():
            with transaction.atomic(using=engine.alias):
                nothing.using(queue="inside").enqueue()
            yield take.call(row.pk)
            if row.args[0] == 2:
                return

    assert values(engine, take.enqueue_many(calls())) == [row.pk for row in rows]
    assert len(jobs(engine)) == 9
