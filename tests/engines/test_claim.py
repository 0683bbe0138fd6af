"""What a claim takes, in which order, and what it writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from django_jobs.engines.values import Claimed, ClaimResult, released
from django_jobs.models import Job
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import (
    TYPES,
    WORKER,
    alone,
    alter,
    beside_others,
    claim,
    claim_one,
    clock,
    enqueue,
    ids,
    on_postgresql,
    order,
    row,
    rows,
)
from tests.harness import wait_for
from tests.threads import session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

T0 = datetime(2020, 1, 1, tzinfo=UTC)


def at(second: int, priority: int = 0, queue: str = "default") -> int:
    """Enqueue a job that was due so many seconds after a moment in the past; return its id."""
    return nothing.using(run_at=T0 + timedelta(seconds=second), priority=priority, queue=queue).enqueue().pk


# The order.


@alone
def test_jobs_are_claimed_by_priority_then_due_time_then_id(engine: Engine) -> None:
    late, first, second, urgent, early, least = at(9), at(5), at(5), at(8, 100), at(1), at(0, -100)
    expected = [urgent, early, first, second, late, least]
    assert ids(claim(engine, 10)) == expected


@alone
def test_jobs_claimed_one_by_one_come_in_the_same_order_over_all_queues(engine: Engine) -> None:
    made = [
        at(9, 5, "b"),
        at(1, 0, "a"),
        at(4, 5, "a"),
        at(2, 0, "c"),
        at(3, -7, "b"),
        at(3, 0, "b"),
        at(5, 5, "c"),
    ]
    expected = [made[2], made[6], made[0], made[1], made[3], made[5], made[4]]
    assert [claim_one(engine).id for _ in made] == expected
    assert claim(engine) == []


@alone
def test_a_batch_takes_a_higher_priority_of_any_queue_first(engine: Engine) -> None:
    low = [at(0, 1, queue) for queue in "abc"]
    high = [at(9, 2, queue) for queue in "cab"]
    assert sorted(ids(claim(engine, 4))[:3]) == sorted(high)
    assert len(claim(engine, 4)) == len(low) - 1


@alone
def test_a_claim_takes_no_more_than_its_limit(engine: Engine) -> None:
    made = ids(enqueue(5))
    assert [ids(claim(engine, 2)) for _ in range(4)] == [made[:2], made[2:4], made[4:], []]


@alone
def test_a_job_of_the_future_is_not_taken_until_it_is_due(engine: Engine) -> None:
    later = nothing.using(delay=3600, priority=100).enqueue()
    now = nothing.enqueue()
    soon = nothing.using(delay=0.3).enqueue()
    assert ids(claim(engine, 10)) == [now.pk]
    wait_for(lambda: clock(engine) > soon.run_at)
    assert ids(claim(engine, 10)) == [soon.pk]
    assert row(engine, later.pk)["status"] == "ready"


@alone
def test_a_job_of_the_future_does_not_hide_those_behind_it(engine: Engine) -> None:
    for queue in ("a", "b"):
        nothing.using(delay=3600, priority=5, queue=queue).enqueue()
    due = [at(1, 4, "b"), at(2, 3, "a")]
    assert ids(claim(engine, 10)) == due


@alone
def test_only_the_queues_served_are_claimed_from(engine: Engine) -> None:
    a, b, c = at(1, 0, "a"), at(2, 0, "b"), at(3, 0, "c")
    before = row(engine, b)
    assert ids(claim(engine, 10, queues=("none",))) == []
    assert ids(claim(engine, 10, queues=("c", "a"))) == [a, c]
    assert row(engine, b) == before
    assert ids(claim(engine, 10, queues=None)) == [b]


# What is written.


@alone
def test_a_claim_writes_a_lease_and_returns_what_the_worker_needs(engine: Engine) -> None:
    made = nothing.using(timeout=7, max_attempts=3, idempotency_key="k", priority=2).enqueue(5)
    alter(engine, made.pk, slot=T0, attempts=1, losses=1)
    before, start = row(engine, made.pk), clock(engine)
    (claimed,) = claim(engine, 1, lease=40)
    end = clock(engine)
    given = Claimed(made.pk, 1, WORKER, nothing.name, "", 1, 3, "k", 7.0, T0, None, "default", 2, losses=1)
    assert claimed._replace(payload="", due=0.0, waited=0.0) == given
    assert claimed.due == pytest.approx(before["run_at"].timestamp(), abs=0.001)
    assert 0 <= claimed.waited <= (end - before["run_at"]).total_seconds()
    assert claimed.payload.replace(" ", "") == '{"args":[5],"kwargs":{}}'
    after = row(engine, made.pk)
    started = after["last_started_at"]
    assert start <= started <= end
    assert start <= after["locked_until"] - timedelta(seconds=40) <= end
    assert after == before | {
        "status": "running",
        "token": 1,
        "locked_by": WORKER,
        "locked_until": after["locked_until"],
        "started_at": started,
        "last_started_at": started,
    }


@alone
def test_every_claim_grows_the_token_and_keeps_the_first_start(engine: Engine) -> None:
    (made,) = enqueue(1)
    first = claim_one(engine)
    started = row(engine, made.pk)["started_at"]
    engine.settle([released(first)], max_uncounted=10)
    wait_for(lambda: clock(engine) > started)
    second = claim_one(engine, locked_by="c3d4:9")
    assert (second.id, second.token, second.locked_by) == (made.pk, 2, "c3d4:9")
    after = row(engine, made.pk)
    assert (after["started_at"], after["last_started_at"] > started) == (started, True)


@alone
def test_a_running_or_ended_job_is_not_claimed(engine: Engine) -> None:
    made = enqueue(6)
    claim(engine, 1)
    for job, status in zip(made[1:], ["done", "failed", "dead", "cancelled"], strict=False):
        alter(engine, job.pk, status=status, finished_at=T0)
    assert ids(claim(engine, 10)) == [made[5].pk]


@on_postgresql
@beside_others
def test_a_claim_locks_no_more_than_it_takes(engine: Engine) -> None:
    for number in range(12):
        at(number, number % 3, "ab"[number % 2])
    with session(engine.alias) as other:
        other.begin()
        taken = other.do(lambda: ids(claim(engine, 5)))
        left = ids(claim(engine, 12, locked_by="c3d4:1"))
    assert (len(taken), len(left)) == (5, 7)


# Types that a worker does not know.


@alone
def test_a_job_of_an_unknown_type_is_parked_once_and_keeps_its_place(engine: Engine) -> None:
    made = leave_effect.enqueue("a")
    known = nothing.enqueue()
    before = row(engine, made.pk)
    result = engine.claim(order(10))
    assert (ids(result.jobs), result.parked) == ([known.pk], 1)
    assert row(engine, made.pk) == before | {"parked": "type"}
    assert engine.claim(order(10)) == ClaimResult([], 0, 0)
    assert engine.claim(order(10, types=(leave_effect.name,))) == ClaimResult([], 0, 0)


@alone
def test_a_worker_that_knows_the_type_takes_what_others_parked(engine: Engine) -> None:
    made = leave_effect.enqueue("a")
    engine.claim(order(10, types=()))
    assert engine.claim_parked(order(10)) == ClaimResult([], 0, 0)
    before, start = row(engine, made.pk), clock(engine)
    result = engine.claim_parked(order(10, types=(*TYPES, leave_effect.name)))
    (claimed,) = result.jobs
    assert (claimed.run, claimed.type, result.parked) == ((made.pk, 1, WORKER), leave_effect.name, 0)
    after = row(engine, made.pk)
    started = after["last_started_at"]
    assert start <= started <= after["locked_until"] - timedelta(seconds=30)
    assert after == before | {
        "status": "running",
        "parked": None,
        "token": 1,
        "locked_by": WORKER,
        "locked_until": after["locked_until"],
        "started_at": started,
        "last_started_at": started,
    }


@alone
def test_parked_jobs_are_taken_by_priority_from_the_queues_served_and_only_when_due(engine: Engine) -> None:
    low, other_queue, high, later = at(1), at(1, 0, "other"), at(2, 5), at(3)
    assert engine.claim(order(10, types=())) == ClaimResult([], 4, 4)
    alter(engine, later, run_at=clock(engine) + timedelta(hours=1))
    assert ids(engine.claim_parked(order(1, queues=("default",))).jobs) == [high]
    assert ids(engine.claim_parked(order(10, queues=("default",))).jobs) == [low]
    assert ids(engine.claim_parked(order(10)).jobs) == [other_queue]
    assert engine.claim_parked(order(10)) == ClaimResult([], 0, 0)


@alone
def test_suspects_are_claimed_by_nobody(engine: Engine) -> None:
    (suspect,) = ids(enqueue(1))
    alter(engine, suspect, parked=Job.Parked.SUSPECT)
    before = rows(engine)
    assert engine.claim(order(10)) == engine.claim_parked(order(10)) == ClaimResult([], 0, 0)
    assert rows(engine) == before


@alone
def test_a_worker_that_knows_nothing_parks_a_batch_and_no_more(engine: Engine) -> None:
    enqueue(5)
    assert [engine.claim(order(2, types=())).parked for _ in range(4)] == [2, 2, 1, 0]


@alone
def test_thousands_of_known_types_and_queues_can_be_named(engine: Engine) -> None:
    many = tuple(f"t{number}" for number in range(40_000))
    queues = (*(f"q{number}" for number in range(40_000)), "default")
    (made,) = enqueue(1)
    assert ids(engine.claim(order(1, types=(*many, *TYPES), queues=queues)).jobs) == [made.pk]
