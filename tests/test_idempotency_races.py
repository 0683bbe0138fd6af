"""A key for which several ask at once."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import OperationalError, connections, transaction
from django.test import override_settings

from django_jobs import EnqueueTimeout, IdempotencyConflict
from tests.app.jobs import nothing
from tests.engines.common import beside_others, on_postgresql
from tests.enqueues import jobs, keyed, take
from tests.threads import Session, session, together, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


# A holder whose transaction is open.


@on_postgresql
@beside_others
def test_the_waiter_wins_when_the_holder_is_rolled_back(engine: Engine, other: Session) -> None:
    other.begin()
    never = other.do(lambda: keyed.enqueue(1))
    with session(engine.alias) as third:
        waiting = third.start(lambda: keyed.enqueue(2))
        wait_for_blocked()
        other.rollback()
        made = waiting.result(10)
    assert made.pk != never.pk
    assert jobs(engine) == [made]


@on_postgresql
@beside_others
def test_the_waiter_gets_the_job_of_the_holder_that_commits(engine: Engine, other: Session) -> None:
    other.begin()
    holder = other.do(lambda: keyed.enqueue(1))
    with session(engine.alias) as third:
        third.begin()
        waiting = third.start(lambda: keyed.enqueue(1))
        wait_for_blocked()
        other.commit()
        assert waiting.result(10) == holder
        third.do(nothing.enqueue)
        third.commit()
    assert [made.type for made in jobs(engine)] == [take.name, nothing.name]


@on_postgresql
@beside_others
def test_the_waiter_for_another_call_gets_a_conflict_when_the_holder_commits(engine: Engine, other: Session) -> None:
    other.begin()
    holder = other.do(lambda: keyed.enqueue(1))
    with session(engine.alias) as third:
        third.begin()
        waiting = third.start(lambda: keyed.enqueue(2))
        wait_for_blocked()
        other.commit()
        with pytest.raises(IdempotencyConflict):
            waiting.result(10)
        after = third.do(nothing.enqueue)
        third.commit()
    assert jobs(engine) == [holder, after]


@beside_others
def test_a_holder_that_does_not_end_is_waited_for_a_bounded_time(engine: Engine, other: Session) -> None:
    other.begin()
    holder = other.do(lambda: keyed.enqueue(1))
    started = time.monotonic()
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.3}), pytest.raises(EnqueueTimeout) as caught:
        keyed.enqueue(1)
    assert 0.25 < time.monotonic() - started < 5
    assert str(caught.value) == (
        "Another transaction holds the idempotency key 'k' and did not end within 0.3 s (ENQUEUE_TIMEOUT). "
        "Nothing was enqueued; try again when that transaction is over."
    )
    other.commit()
    assert keyed.enqueue(1) == holder
    assert jobs(engine) == [holder]


def lock_timeout(engine: Engine) -> Any:
    statement = "SHOW lock_timeout" if engine.name == "postgresql" else "PRAGMA busy_timeout"
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


@beside_others
def test_the_time_limit_of_the_callers_own_waits_stays_what_it_was(engine: Engine, other: Session) -> None:
    before = lock_timeout(engine)
    keyed.enqueue(1)
    keyed.enqueue(1)
    assert lock_timeout(engine) == before
    with transaction.atomic(using=engine.alias):
        keyed.enqueue(1)
        take.using(idempotency_key="new").enqueue(1)
        assert lock_timeout(engine) == before
    other.begin()
    other.do(lambda: take.using(idempotency_key="held").enqueue(1))
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.05}), pytest.raises(EnqueueTimeout):
        take.using(idempotency_key="held").enqueue(1)
    assert lock_timeout(engine) == before


@on_postgresql
@beside_others
def test_the_callers_transaction_goes_on_after_a_timeout_with_its_own_lock_timeout(
    engine: Engine, other: Session
) -> None:
    other.begin()
    other.do(lambda: keyed.enqueue(1))
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.05}), transaction.atomic(using=engine.alias):
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '7s'")
        before = nothing.enqueue(1)
        with pytest.raises(EnqueueTimeout):
            keyed.enqueue(1)
        assert lock_timeout(engine) == "7s"
        after = nothing.enqueue(2)
    other.rollback()
    assert jobs(engine) == [before, after]


# Many at once.


@beside_others
def test_of_many_who_ask_at_once_and_half_of_whom_are_rolled_back_one_makes_the_job(engine: Engine) -> None:
    def ask(commits: bool) -> tuple[bool, int]:
        with transaction.atomic(using=engine.alias):
            made = keyed.enqueue(1)
            if not commits:
                transaction.set_rollback(True, using=engine.alias)
        return commits, made.pk

    many = 40 if engine.name == "postgresql" else 10
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 20}):
        answers = together([partial(ask, number % 2 == 0) for number in range(many)])
    (made,) = jobs(engine)
    assert {pk for commits, pk in answers if commits} == {made.pk}


@beside_others
def test_many_who_ask_at_once_in_autocommit_all_get_the_one_job(engine: Engine) -> None:
    many = 20 if engine.name == "postgresql" else 8
    answers = together([lambda: keyed.enqueue(1)] * many)
    assert jobs(engine) == [answers[0]]
    assert answers == [answers[0]] * many


@on_postgresql
@beside_others
def test_under_repeatable_read_a_key_committed_meanwhile_is_the_databases_serialization_error(
    engine: Engine, other: Session
) -> None:
    with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT 1 FROM django_jobs_job")
        holder = other.do(lambda: keyed.enqueue(1))
        with pytest.raises(OperationalError) as caught:
            keyed.enqueue(1)
        assert isinstance(caught.value.__cause__, psycopg.errors.SerializationFailure)
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    assert jobs(engine) == [holder]
