"""Claiming jobs that are to be run alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.db.models.functions import Now

from django_jobs import pause
from django_jobs.models import Job
from tests.app.jobs import nothing, report
from tests.engines.common import (
    TYPES,
    alone,
    alter,
    beside_others,
    claim,
    enqueue,
    ids,
    on_postgresql,
    order,
    row,
    settled,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from tests.threads import Session


def suspects(engine: Engine, count: int, **options: object) -> list[Job]:
    jobs = enqueue(count, **options)
    for job in jobs:
        alter(engine, job.pk, suspect=True, parked="suspect", losses=1)
    return jobs


def later(engine: Engine, job: Job, seconds: float) -> None:
    alter(engine, job.pk, run_at=Now() + timedelta(seconds=seconds))


@alone
def test_no_other_claim_takes_or_sees_a_suspect(engine: Engine) -> None:
    suspects(engine, 2)
    assert claim(engine, 10) == []
    assert engine.claim_parked(order(10)).jobs == []
    look = engine.look(None, TYPES)
    assert (look.due_in, look.parked) == (None, False)


@alone
def test_one_suspect_is_claimed_at_a_time_however_many_are_asked_for(engine: Engine) -> None:
    first, second = suspects(engine, 2)
    result = engine.claim_suspect(order(10, locked_by="w:7"))
    (claimed,) = result.jobs
    assert (claimed.id, claimed.token, claimed.locked_by, claimed.type) == (first.pk, 1, "w:7", nothing.name)
    assert (result.parked, result.unknown) == (0, 0)
    found = row(engine, first.pk)
    assert (found["status"], found["parked"], found["suspect"]) == ("running", None, True)
    assert (found["token"], found["locked_by"], found["losses"]) == (1, "w:7", 1)
    assert found["started_at"] is not None
    assert ids(engine.claim_suspect(order()).jobs) == [second.pk]
    assert engine.claim_suspect(order()).jobs == []


@alone
def test_suspects_that_were_lost_least_often_come_first_and_of_those_the_one_due_longest(engine: Engine) -> None:
    jobs = suspects(engine, 4)
    for job, losses, due in zip(jobs, [3, 1, 1, 2], [-90, -10, -60, -120], strict=True):
        alter(engine, job.pk, losses=losses)
        later(engine, job, due)
    order_of_claims = [ids(engine.claim_suspect(order()).jobs)[0] for _ in jobs]
    assert order_of_claims == [jobs[2].pk, jobs[1].pk, jobs[3].pk, jobs[0].pk]


@alone
def test_suspects_of_an_unknown_or_paused_type_or_queue_are_neither_claimed_nor_counted(engine: Engine) -> None:
    suspects(engine, 1, queue="shut")
    suspects(engine, 1, queue="other")
    Job.objects.using(engine.alias).create(
        type=report.name, payload={"args": [], "kwargs": {}}, suspect=True, parked="suspect"
    )
    pause(queue="shut")
    assert engine.claim_suspect(order(types=TYPES, queues=("shut", "default"))).jobs == []
    assert engine.suspects_due(("shut", "default"), TYPES, 5) == []
    pause(type=report)
    assert engine.claim_suspect(order(types=(report.name,))).jobs == []
    assert engine.suspects_due(None, (report.name,), 5) == []
    assert engine.suspects_due(None, TYPES, 5) == [0.0]
    assert len(engine.claim_suspect(order(types=TYPES)).jobs) == 1


@alone
def test_a_supervisor_is_told_when_the_next_suspects_are_due(engine: Engine) -> None:
    jobs = suspects(engine, 3)
    later(engine, jobs[0], 60)
    later(engine, jobs[1], -60)
    later(engine, jobs[2], 30)
    found = engine.suspects_due(None, TYPES, 2)
    assert found[0] == 0.0
    assert 29 < found[1] < 30.01
    assert len(engine.suspects_due(None, TYPES, 10)) == 3
    engine.claim_suspect(order())
    assert all(seconds > 0 for seconds in engine.suspects_due(None, TYPES, 10))
    assert engine.claim_suspect(order()).jobs == []


@alone
def test_a_suspect_whose_key_waits_for_its_claim_frees_it(engine: Engine) -> None:
    job = nothing.using(idempotency_key="a", unique="waiting").enqueue()
    alter(engine, job.pk, suspect=True, parked="suspect")
    (claimed,) = engine.claim_suspect(order()).jobs
    assert (claimed.idempotency_key, row(engine, job.pk)["idempotency_key"]) == (None, None)


@alone
def test_a_suspect_given_back_unstarted_is_parked_again(engine: Engine) -> None:
    (job,) = suspects(engine, 1)
    (claimed,) = engine.claim_suspect(order()).jobs
    engine.settle([settled(claimed.run, cause="released")], 10)
    found = row(engine, job.pk)
    assert (found["status"], found["parked"], found["suspect"], found["losses"]) == ("ready", "suspect", True, 1)


@on_postgresql
@beside_others
def test_two_claims_at_once_take_different_suspects_and_wait_for_nobody(engine: Engine, other: Session) -> None:
    first, second = suspects(engine, 2)
    other.begin()
    other.sql("SELECT id FROM django_jobs_job WHERE id = %s FOR UPDATE", first.pk)
    assert ids(engine.claim_suspect(order()).jobs) == [second.pk]
    other.commit()
    assert ids(engine.claim_suspect(order()).jobs) == [first.pk]


@pytest.mark.parametrize("status", ["done", "failed", "cancelled", "dead"])
@alone
def test_what_has_ended_is_no_suspect_to_run(engine: Engine, status: str) -> None:
    (job,) = suspects(engine, 1)
    alter(engine, job.pk, status=status, parked=None, finished_at=Now())
    assert engine.suspects_due(None, TYPES, 1) == []
    assert engine.claim_suspect(order()).jobs == []
