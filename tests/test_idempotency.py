"""A key stands for one call, on each database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from django_jobs import IdempotencyConflict, JobsError
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others
from tests.enqueues import jobs, keyed, nothing_keyed, take
from tests.threads import Session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


# The same call, and another one.


@alone
def test_the_same_key_and_call_returns_the_first_job(engine: Engine) -> None:
    first = keyed.using(priority=5).enqueue(1, option={"a": [2]})
    again = keyed.using(priority=-5, queue="mail", delay=600, max_attempts=1).enqueue(1, option={"a": [2]})
    assert again == first
    fields = [field.attname for field in Job._meta.concrete_fields]
    assert [getattr(again, name) for name in fields] == [getattr(first, name) for name in fields]
    assert jobs(engine) == [first]
    assert (first.reused, again.reused) == (False, True)


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
    (lambda: keyed.enqueue(1e23), lambda: keyed.enqueue(10**23)),
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
    name = "tests.enqueues.take"
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
    assert str(caught.value) == "The idempotency key 'k' was taken and freed 10 times in a row; try again."
