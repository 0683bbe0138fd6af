"""Jobs that are not to start after a time, on each database and with real workers."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import pause
from django_jobs.engines.causes import EXPIRED
from django_jobs.engines.values import released
from django_jobs.models import Job
from django_jobs.queue import rescue
from django_jobs.workers.heart import Heart
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, alter, beside_others, claim, clock, on_postgresql, order, settled
from tests.enqueues import jobs, take
from tests.processes.common import effects, with_tables
from tests.processes.parts import Tables
from tests.threads import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine
    from tests.harness import Tree

PAST = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)


def expired(**options: Any) -> Job:
    return nothing.using(expires=PAST, **options).enqueue()


def assert_expired(job: Job, run: int) -> None:
    job.refresh()
    ends = [(line["run"], line["cause"], line["error"], line["seconds"]) for line in job.history]
    assert (job.status, job.parked, job.last_error, ends) == (
        "cancelled",
        None,
        EXPIRED,
        [(run, "expired", EXPIRED, 0)],
    )
    assert job.finished_at is not None
    assert dt.datetime.fromisoformat(job.history[0]["at"]) - job.finished_at < dt.timedelta(seconds=1)


@alone
@pytest.mark.parametrize("given", [90, 90.0, dt.timedelta(seconds=90)])
def test_a_duration_counts_from_the_enqueue_by_the_databases_clock(engine: Engine, given: Any) -> None:
    made = nothing.using(expires=given).enqueue()
    assert made.expires_at is not None
    assert abs(made.expires_at - made.created_at - dt.timedelta(seconds=90)) < dt.timedelta(milliseconds=50)


@alone
def test_a_time_is_stored_as_given(engine: Engine) -> None:
    moment = dt.datetime(2040, 1, 1, 12, 0, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert nothing.using(expires=moment).enqueue().refresh().expires_at == moment


WAITING: dict[str, Callable[[Engine], Any]] = {
    "due": lambda engine: None,
    "of an unknown type": lambda engine: engine.claim(order(types=())),
    "of a paused queue": lambda engine: pause(queue="default"),
    "of a paused type": lambda engine: (pause(type=nothing.name), engine.claim(order())),
    "due later": lambda engine: Job.objects.using(engine.alias).update(run_at=clock(engine).replace(year=2090)),
}


@alone
@pytest.mark.parametrize("why", WAITING)
def test_what_waits_when_its_time_is_over_is_cancelled_wherever_it_waits(engine: Engine, why: str) -> None:
    late, early, never = expired(), nothing.using(expires=3600).enqueue(), nothing.enqueue()
    WAITING[why](engine)
    assert engine.cancel_expired(10) == 1
    assert_expired(late, run=0)
    assert [early.refresh().status, never.refresh().status] == ["ready", "ready"]
    assert engine.cancel_expired(10) == 0


@alone
def test_a_claim_tells_what_is_expired(engine: Engine) -> None:
    late, early, never = expired(priority=3), nothing.using(expires=3600, priority=2).enqueue(), nothing.enqueue()
    found = {claimed.id: claimed.expired for claimed in claim(engine, 3)}
    assert found == {late.pk: True, early.pk: False, never.pk: False}


@alone
@pytest.mark.parametrize("parked", [False, True])
def test_a_claim_tells_what_is_left_by_the_databases_clock(engine: Engine, parked: bool) -> None:
    nothing.using(expires=3600).enqueue()
    if parked:
        engine.claim(order(types=()))
    (claimed,) = engine.claim_parked(order()).jobs if parked else claim(engine)
    assert claimed.expires_in is not None
    assert 3590 < claimed.expires_in <= 3600


@alone
def test_a_parked_job_is_claimed_as_expired(engine: Engine) -> None:
    expired()
    engine.claim(order(types=()))
    (claimed,) = engine.claim_parked(order()).jobs
    assert claimed.expired


@alone
@pytest.mark.parametrize("counts", ["attempt", "loss", "end", "nothing"])
def test_a_later_run_does_not_start_after_the_time_either(engine: Engine, counts: Any) -> None:
    made = nothing.using(expires=3600).enqueue()
    (claimed,) = claim(engine)
    engine.settle([settled(claimed.run, counts=counts, entry='{"run": 1, "cause": "test", "error": ""}')], 10)
    alter(engine, made.pk, expires_at=PAST)
    assert engine.cancel_expired(10) == 1
    assert [line["cause"] for line in made.refresh().history] == ["test", "expired"]


@alone
def test_a_claim_that_was_given_back_has_started_nothing(engine: Engine) -> None:
    made = nothing.using(expires=3600).enqueue()
    (claimed,) = claim(engine)
    engine.settle([released(claimed.run)], 10)
    assert made.refresh().expires_at is not None
    alter(engine, made.pk, expires_at=PAST)
    assert engine.cancel_expired(10) == 1
    assert_expired(made, run=1)


@alone
def test_a_job_that_runs_is_not_cancelled(engine: Engine) -> None:
    made = nothing.using(expires=3600).enqueue()
    claim(engine)
    alter(engine, made.pk, expires_at=PAST)
    assert engine.cancel_expired(10) == 0
    assert made.refresh().status == "running"


@alone
def test_a_long_history_keeps_its_first_line_and_the_last_nine(engine: Engine) -> None:
    made = expired()
    alter(engine, made.pk, history=[{"run": run, "cause": "test"} for run in range(10)])
    engine.cancel_expired(10)
    assert [line["run"] for line in made.refresh().history] == [0, 2, 3, 4, 5, 6, 7, 8, 9, 0]


@alone
def test_a_batch_takes_what_has_waited_longest(engine: Engine) -> None:
    made = [nothing.using(expires=PAST + dt.timedelta(days=day)).enqueue() for day in (3, 1, 2)]
    assert engine.cancel_expired(2) == 2
    assert [job.refresh().status for job in made] == ["ready", "cancelled", "cancelled"]


@on_postgresql
@beside_others
def test_a_row_that_somebody_holds_is_left_for_the_next_time(engine: Engine, other: Session) -> None:
    made = [expired(), expired()]
    other.begin()
    other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR SHARE", made[0].pk)
    assert engine.cancel_expired(10) == 1
    other.rollback()
    assert engine.cancel_expired(10) == 1
    assert [job.status for job in jobs(engine)] == ["cancelled", "cancelled"]


@with_tables
def test_a_sweep_says_once_how_many_it_cancelled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "django_jobs")
    monkeypatch.setattr(rescue, "BATCH", 2)
    tables = Tables(engine)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    for _ in range(5):
        expired()
    for _ in range(2):
        heart._reap()
    assert {job.status for job in jobs(engine)} == {"cancelled"}
    assert [record.message.split(":")[0] for record in caplog.records] == ["5 jobs were cancelled"]


@pytest.mark.process
@with_tables
def test_real_workers_run_what_is_in_time_and_cancel_the_rest(tree: Tree) -> None:
    late = leave_effect.using(expires=PAST, priority=5).enqueue("late")
    in_time = leave_effect.using(expires=3600).enqueue("in time")
    unserved = take.using(expires=0.5, queue="unserved").enqueue()
    paused = nothing.using(expires=0.5, queue="paused").enqueue()
    unknown = nothing.using(expires=0.5).enqueue()
    Job.objects.using(tree.alias).filter(pk=unknown.pk).update(type="no.such.type")
    pause(queue="paused")
    workers = tree.start("--queues", "default,paused")
    workers.wait_until_ready()
    tree.wait_for_status(in_time, "done")
    for job in (late, unserved, paused, unknown):
        tree.wait_for_status(job, "cancelled")
        assert [line["cause"] for line in job.history] == ["expired"]
    assert effects(tree) == [("in time", 1)]
    assert workers.stop() == 0


@pytest.mark.process
@with_tables
def test_a_worker_that_meets_an_expired_job_cancels_it_unrun(tree: Tree) -> None:
    workers = tree.start(settings={"LEASE": 90, "HEARTBEAT": 30})  # so that no sweep meets it before
    workers.wait_until_ready()
    late = leave_effect.using(expires=PAST).enqueue("late")
    tree.wait_for_status(late, "cancelled")
    assert_expired(late, run=1)
    assert effects(tree) == []
    assert workers.stop() == 0
