"""A key stands for one call: on each database, and when several ask for it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now
from django.test import override_settings

from django_jobs import EnqueueTimeout, IdempotencyConflict, JobsError, job
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.threads import Session, session, together, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@job
def take(value: Any = None, *, option: Any = None) -> None: ...


keyed = take.using(idempotency_key="k")
nothing_keyed = nothing.using(idempotency_key="k")

alone = pytest.mark.django_db(databases="__all__")
beside_others = pytest.mark.django_db(
    transaction=True, databases="__all__", available_apps=["django_jobs", "tests.app"]
)


# SQLite has one writer at a time: who comes second waits before its transaction begins.
on_postgresql = pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)


@pytest.fixture
def other(engine: Engine) -> Iterator[Session]:
    with session(engine.alias) as found:
        yield found


def jobs(engine: Engine) -> list[Job]:
    return list(Job.objects.using(engine.alias).order_by("id"))


# The same call, and another one.


@alone
def test_the_same_key_and_call_returns_the_first_job(engine: Engine) -> None:
    first = keyed.using(priority=5).enqueue(1, option={"a": [2]})
    again = keyed.using(priority=-5, queue="mail", delay=600, max_attempts=1).enqueue(1, option={"a": [2]})
    assert again == first
    fields = [field.attname for field in Job._meta.concrete_fields]
    assert [getattr(again, name) for name in fields] == [getattr(first, name) for name in fields]
    assert jobs(engine) == [first]


@alone
def test_jobs_without_a_key_are_never_the_same(engine: Engine) -> None:
    assert len({take.enqueue(1).pk, take.enqueue(1).pk, keyed.enqueue(1).pk}) == 3


SAME: list[tuple[Callable[[], Job], Callable[[], Job]]] = [
    (lambda: keyed.enqueue(1, option=2), lambda: keyed.enqueue(1, option=2)),
    (lambda: keyed.enqueue(option=2, value=1), lambda: keyed.enqueue(value=1, option=2)),
    (lambda: keyed.enqueue({"a": 1, "b": {"c": 1, "d": 2}}), lambda: keyed.enqueue({"b": {"d": 2, "c": 1}, "a": 1})),
    (lambda: keyed.enqueue(1), lambda: keyed.enqueue(1.0)),
    (lambda: keyed.enqueue([1e16, 1e22, 1e23, 1e300]), lambda: keyed.enqueue([1e16, 1e22, 1e23, 1e300])),
    (lambda: keyed.enqueue([0.1, 1e-7, 5e-324, 10**100]), lambda: keyed.enqueue([0.1, 1e-7, 5e-324, 10**100])),
    (lambda: keyed.enqueue("ß\u2028😀\\"), lambda: keyed.enqueue("ß\u2028😀\\")),
]


@alone
@pytest.mark.parametrize("case", range(len(SAME)))
def test_calls_that_say_the_same_in_json_are_the_same(engine: Engine, case: int) -> None:
    first, again = SAME[case]
    assert first() == again()
    assert len(jobs(engine)) == 1


ANOTHER: list[tuple[Callable[[], Job], Callable[[], Job], str, str]] = [
    (lambda: keyed.enqueue(1), lambda: keyed.enqueue(2), '{"args":[1],"kwargs":{}}', '{"args":[2],"kwargs":{}}'),
    (lambda: keyed.enqueue(1), lambda: keyed.enqueue(True), '{"args":[1],"kwargs":{}}', '{"args":[true],"kwargs":{}}'),
    (
        lambda: keyed.enqueue(False),
        lambda: keyed.enqueue(0),
        '{"args":[false],"kwargs":{}}',
        '{"args":[0],"kwargs":{}}',
    ),
    (
        lambda: keyed.enqueue([{"a": True}]),
        lambda: keyed.enqueue([{"a": 1}]),
        '{"args":[[{"a":true}]],"kwargs":{}}',
        '{"args":[[{"a":1}]],"kwargs":{}}',
    ),
    (
        lambda: keyed.enqueue([1, 2]),
        lambda: keyed.enqueue([2, 1]),
        '{"args":[[1,2]],"kwargs":{}}',
        '{"args":[[2,1]],"kwargs":{}}',
    ),
    (lambda: keyed.enqueue("1"), lambda: keyed.enqueue(1), '{"args":["1"],"kwargs":{}}', '{"args":[1],"kwargs":{}}'),
    (lambda: keyed.enqueue(None), lambda: keyed.enqueue(), '{"args":[null],"kwargs":{}}', '{"args":[],"kwargs":{}}'),
    (
        lambda: keyed.enqueue(1),
        lambda: keyed.enqueue(value=1),
        '{"args":[1],"kwargs":{}}',
        '{"args":[],"kwargs":{"value":1}}',
    ),
    (
        lambda: keyed.enqueue(1e23),
        lambda: keyed.enqueue(10**23),
        '{"args":[99999999999999991611392.0],"kwargs":{}}',
        '{"args":[1' + "0" * 23 + '],"kwargs":{}}',
    ),
]


@alone
@pytest.mark.parametrize("case", range(len(ANOTHER)))
def test_another_call_under_the_key_is_a_conflict_and_the_transaction_goes_on(engine: Engine, case: int) -> None:
    first, another, held, asked = ANOTHER[case]
    with transaction.atomic(using=engine.alias):
        holder = first()
        with pytest.raises(IdempotencyConflict) as caught:
            another()
        after = nothing.enqueue()
    name = "tests.test_idempotency.take"
    assert caught.value.job_id == holder.pk
    assert str(caught.value) == (
        f"The idempotency key 'k' belongs to job {holder.pk}, {name} {held}; it cannot also stand for {name} {asked}. "
        "Use another key for another call."
    )
    assert jobs(engine) == [holder, after]


@alone
def test_another_type_under_the_key_is_a_conflict(engine: Engine) -> None:
    holder = keyed.enqueue(1)
    with pytest.raises(IdempotencyConflict, match=r"take .*; it cannot also stand for tests\.app\.jobs\.nothing "):
        nothing_keyed.enqueue(1)
    assert jobs(engine) == [holder]


@alone
@pytest.mark.parametrize("status", Job.Status.values)
def test_a_holder_counts_in_whatever_state_it_is(engine: Engine, status: str) -> None:
    holder = keyed.enqueue(1)
    changes: dict[str, Any] = {"status": status}
    if status == "running":
        changes |= {"locked_by": "w:1", "locked_until": Now()}
    elif status != "ready":
        changes |= {"finished_at": Now()}
    Job.objects.using(engine.alias).filter(pk=holder.pk).update(**changes)
    assert keyed.enqueue(1) == holder
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue(2)
    assert jobs(engine) == [holder]


# A holder that goes away in between.


@beside_others
def test_a_holder_deleted_before_it_is_read_leaves_the_key_to_the_caller(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, read = keyed.enqueue(1), engine.holder

    def deleted(key: str) -> Job | None:
        other.sql("DELETE FROM django_jobs_job WHERE idempotency_key = %s", key)
        return read(key)

    monkeypatch.setattr(engine, "holder", deleted)
    made = keyed.enqueue(1)
    assert made != holder
    assert jobs(engine) == [made]


@beside_others
def test_a_key_that_is_taken_and_freed_again_and_again_is_given_up_on(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = engine.holder

    def deleted_and_taken(key: str) -> Job | None:
        other.sql("DELETE FROM django_jobs_job WHERE idempotency_key = %s", key)
        found = read(key)
        other.sql("INSERT INTO django_jobs_job (type, payload, idempotency_key) VALUES ('t', '{}', %s)", key)
        return found

    keyed.enqueue(1)
    monkeypatch.setattr(engine, "holder", deleted_and_taken)
    with pytest.raises(JobsError) as caught:
        keyed.enqueue(1)
    assert str(caught.value) == "The idempotency key 'k' was taken and freed three times in a row; try again."


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
