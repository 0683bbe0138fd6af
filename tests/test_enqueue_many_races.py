"""Many keys for which several ask at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_jobs import EnqueueTimeout, IdempotencyConflict, JobsError
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.engines.common import beside_others, on_postgresql
from tests.enqueues import jobs, take
from tests.threads import Session, session, together, wait_for_blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.engines.base import Engine
    from django_jobs.engines.values import NewJob

pytestmark = beside_others


def call(number: int, **options: Any) -> Any:
    return take.using(idempotency_key=f"k{number:05}", **options).call(number)


def keys(engine: Engine) -> list[str | None]:
    return [job.idempotency_key for job in jobs(engine)]


class Watched:
    """Stands in for an engine's insert_many and holders: notes the keys, and lets a test act before holders are read."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inserted: list[list[int]] = []
        self.frees: list[int] = []
        self.again = False
        self._insert, self._read = engine.insert_many, engine.holders
        self._alias = engine.alias
        monkeypatch.setattr(engine, "insert_many", self.insert_many)
        monkeypatch.setattr(engine, "holders", self.holders)

    def insert_many(self, new: Sequence[NewJob]) -> list[int | None]:
        self.inserted.append([int(str(item.idempotency_key)[1:]) for item in new])
        return self._insert(new)

    def holders(self, wanted: Sequence[str]) -> dict[str, Job]:
        found = self._read(wanted)
        freed = [number for number in self.frees if found.pop(f"k{number:05}", None)]
        if not self.again:
            self.frees = [number for number in self.frees if number not in freed]
        return found


# Several at once.


@pytest.mark.parametrize("rolled_back", [False, True], ids=["both commit", "one is rolled back"])
@pytest.mark.parametrize("mode", ["window", "waiting"])
def test_two_with_the_same_keys_in_opposite_order_never_deadlock(engine: Engine, mode: str, rolled_back: bool) -> None:
    rounds, many = (2, 10_000) if engine.name == "postgresql" else (1, 4_000)

    def ask(numbers: Sequence[int], commits: bool) -> list[int]:
        with transaction.atomic(using=engine.alias):
            ids = take.enqueue_many(call(number, unique=mode) for number in numbers)
            if not commits:
                transaction.set_rollback(True, using=engine.alias)
        return ids

    for number in range(rounds):
        Job.objects.using(engine.alias).all().delete()
        # Of each, a tenth is its own.
        first, second = range(number, many), range(many * 11 // 10 - 1, many // 10 + number - 1, -1)
        with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 30}):
            one, two = together([partial(ask, first, True), partial(ask, second, not rolled_back)])
        made = {str(job.idempotency_key): job.pk for job in jobs(engine)}
        assert [made[f"k{n:05}"] for n in first] == one
        if rolled_back:
            assert len(made) == len(jobs(engine)) == len(first)
        else:
            assert [made[f"k{n:05}"] for n in second] == two
            assert len(made) == len(jobs(engine)) == len({*first, *second})


@on_postgresql
def test_many_with_keys_in_all_orders_in_small_parts_never_deadlock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.queue.enqueue_many.ROWS", 3)

    def ask(shift: int) -> None:
        for step in range(3):
            numbers = [(n * (7 if shift % 2 else -3) + shift + step) % 20 for n in range(20)]
            with transaction.atomic(using=engine.alias):
                take.enqueue_many([call(number, unique="waiting") for number in numbers])
                transaction.set_rollback(bool(shift % 3), using=engine.alias)

    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 30}):
        together([partial(ask, shift) for shift in range(12)])
    assert sorted(map(str, keys(engine))) == [f"k{n:05}" for n in range(20)]


# A holder whose transaction is open.


@on_postgresql
def test_the_waiter_stores_what_the_holder_that_is_rolled_back_did_not(engine: Engine, other: Session) -> None:
    other.begin()
    other.do(lambda: take.enqueue_many([call(1), call(2)]))
    with session(engine.alias) as third:
        waiting = third.start(lambda: take.enqueue_many([call(3), call(2)]))
        wait_for_blocked()
        other.rollback()
        ids = waiting.result(10)
    assert [job.pk for job in jobs(engine)] == sorted(ids)
    assert keys(engine) == ["k00002", "k00003"]


@on_postgresql
def test_the_waiter_for_another_call_gets_a_conflict_and_stores_nothing(engine: Engine, other: Session) -> None:
    other.begin()
    holder = other.do(take.using(idempotency_key="k00002").enqueue)
    with session(engine.alias) as third:
        third.begin()
        waiting = third.start(lambda: take.enqueue_many([take.call(0), call(1), call(2)]))
        wait_for_blocked()
        other.commit()
        with pytest.raises(IdempotencyConflict, match=r"^calls\[2\]: The idempotency key 'k00002' belongs to job"):
            waiting.result(10)
        after = third.do(nothing.enqueue)
        third.commit()
    assert jobs(engine) == [holder, after]


def test_a_holder_that_does_not_end_is_waited_for_a_bounded_time(engine: Engine, other: Session) -> None:
    other.begin()
    holder = other.do(take.using(idempotency_key="k00002").enqueue)
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.2}), pytest.raises(EnqueueTimeout) as caught:
        take.enqueue_many([call(1), call(2)])
    assert str(caught.value) == (
        "Another transaction holds one of the idempotency keys and did not end within 0.2 s (ENQUEUE_TIMEOUT). "
        "Nothing was enqueued; try again when that transaction is over."
    )
    assert not connections[engine.alias].in_atomic_block
    other.commit()
    assert jobs(engine) == [holder]


@on_postgresql
def test_after_a_timeout_the_callers_transaction_goes_on_with_its_own_lock_timeout(
    engine: Engine, other: Session
) -> None:
    other.begin()
    other.do(take.using(idempotency_key="k00002").enqueue)
    with (
        override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.05}),
        transaction.atomic(using=engine.alias),
        connections[engine.alias].cursor() as cursor,
    ):
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        before = nothing.enqueue()
        with pytest.raises(EnqueueTimeout):
            take.enqueue_many([take.call(0), call(1), call(2)])
        after = take.enqueue_many([call(1), call(3)])
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)
    other.rollback()
    assert [job.pk for job in jobs(engine)] == [before.pk, *after]


# A holder that goes away in between.


def test_a_key_freed_before_its_holder_is_read_has_its_part_begun_again_from_its_lowest_key(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.queue.enqueue_many.ROWS", 4)
    holders = take.enqueue_many([call(2), call(5)])
    watched = Watched(engine, monkeypatch)
    watched.frees = [5]
    ids = take.enqueue_many([call(number) for number in (7, 6, 5, 4, 3, 2, 1, 0)])
    # The locks on 0 to 3 stay; those on 4 to 7 are let go and taken again in order.
    assert watched.inserted == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7]]
    assert (ids[5], ids[2]) == tuple(holders)
    assert len(jobs(engine)) == len(set(ids)) == 8


@on_postgresql
def test_what_was_stored_of_a_part_that_is_begun_again_is_let_go_before(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = take.using(idempotency_key="k00001").enqueue(1)
    watched = Watched(engine, monkeypatch)

    def deleted(wanted: Sequence[str]) -> dict[str, Job]:
        monkeypatch.setattr(engine, "holders", watched.holders)
        other.sql("DELETE FROM django_jobs_job WHERE id = %s", holder.pk)
        return watched.holders(wanted)

    def insert_many(new: Sequence[NewJob]) -> list[int | None]:
        if watched.inserted:  # not before the savepoint is rolled back: it would wait for us
            monkeypatch.setattr(engine, "insert_many", watched.insert_many)
            made.append(other.do(lambda: take.using(idempotency_key="k00002").enqueue(2)).pk)
        return watched.insert_many(new)

    made: list[int] = []
    monkeypatch.setattr(engine, "holders", deleted)
    monkeypatch.setattr(engine, "insert_many", insert_many)
    ids = take.enqueue_many([call(1), call(2)])
    assert watched.inserted == [[1, 2], [1], [2]]
    assert ids[1:] == made
    assert sorted(ids) == sorted(job.pk for job in jobs(engine))


def test_a_key_that_is_taken_and_freed_again_and_again_is_given_up_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = take.using(idempotency_key="k00001").enqueue(1)
    watched = Watched(engine, monkeypatch)
    watched.frees, watched.again = [1], True
    with transaction.atomic(using=engine.alias):
        with pytest.raises(JobsError) as caught:
            take.enqueue_many([call(0), call(1), call(2)])
        after = nothing.enqueue()
    assert str(caught.value) == "The idempotency key 'k00001' was taken and freed 20 times in a row; try again."
    assert len(watched.inserted) < 25
    assert jobs(engine) == [holder, after]
