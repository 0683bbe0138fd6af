"""What dead processes leave goes back, and what lives is kept alive."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError
from django.db.models.functions import Now

from django_jobs.engines.base import Engine
from django_jobs.engines.causes import LEASE_RAN_OUT
from django_jobs.engines.values import Claimed, Done, Run
from django_jobs.models import Job
from django_jobs.queue import rescue
from django_jobs.workers import pulse
from django_jobs.workers.ended import Ended
from django_jobs.workers.executor import Assigned
from django_jobs.workers.fallen import Child, Fallen
from django_jobs.workers.heart import Heart
from django_jobs.workers.pulse import FEW
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import State
from tests.app.jobs import leave_effect
from tests.app.models import Effect
from tests.harness import wait_for
from tests.processes.common import on_postgresql, on_sqlite, with_tables
from tests.processes.parts import Tables, claim, claim_suspect, claimed, plan, states
from tests.threads import Session, session

pytestmark = with_tables


def fallen(tables: Tables, how: str | None = "signal 9 (SIGKILL)", **values: Any) -> Fallen:
    """Bury the child with the seats that it has now."""
    tables.living.clear()
    return Fallen(child=tables.child, seats=tables.region.seats(), how=how, **values)


def causes(engine: Engine, jobs: list[Claimed]) -> list[list[str]]:
    rows = Job.objects.using(engine.alias).in_bulk([job.id for job in jobs])
    return [[line["cause"] for line in rows[job.id].history] for job in jobs]


def test_what_a_dead_child_had_claimed_and_in_no_seat_goes_back_uncharged_then_and_later(engine: Engine) -> None:
    tables = Tables(engine)
    at_death = tables.claimed(2, claim_number=7)
    tables.rescuer.add(fallen(tables))
    tables.rescuer.rescue()
    assert states(engine, at_death) == [("ready", 0, 0, 1)] * 2
    assert not tables.rescuer.waiting
    late = claim(engine, 2, f"{tables.child.incarnation}:8")  # committed after its sender died
    assert states(engine, late) == [("running", 0, 0, 2)] * 2
    tables.rescuer.rescue()
    assert states(engine, late) == [("ready", 0, 0, 2)] * 2
    assert causes(engine, late) == [[], []]
    assert tables.rescuer.busy


def test_a_dead_child_whose_jobs_cannot_be_taken_back_keeps_not_those_of_another(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Tables(engine), Tables(engine)
    jobs = [*first.claimed(1), *second.claimed(1)]
    real = engine.held_by

    def held_by(incarnation: str) -> list[Run]:
        if incarnation == first.child.incarnation:
            raise DataError("the first cannot be read")
        return real(incarnation)

    monkeypatch.setattr(engine, "held_by", held_by)
    for tables in (first, second):
        first.rescuer.add(fallen(tables))
    with pytest.raises(DataError):
        first.rescuer.rescue()
    assert [status for status, *_ in states(engine, jobs)] == ["running", "ready"]
    assert first.rescuer.waiting


# The seats of the dead.


def test_of_a_dead_childs_jobs_only_those_that_ran_are_charged(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(3)
    tables.seat(jobs)
    tables.region.mark(1, State.RUNNING)
    tables.region.mark(2, State.RETURNED)
    for _ in range(2):  # a lost answer: it is done again
        tables.rescuer.add(fallen(tables))
        tables.rescuer.rescue()
    assert states(engine, jobs) == [("ready", 0, 0, 1), ("ready", 0, 1, 1), ("ready", 0, 0, 1)]
    assert causes(engine, jobs) == [[], ["died"], ["outcome lost"]]


def test_what_ran_in_a_process_that_ended_itself_waits_before_it_runs_again(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(2)
    tables.seat(jobs)
    tables.region.mark(0, State.RUNNING)
    tables.rescuer.add(fallen(tables, how=None, why="its worker process failed", failed=True))
    tables.rescuer.rescue()
    ran, waited = Job.objects.using(engine.alias).order_by("pk").annotate(clock=Now())
    assert timedelta(seconds=3) < ran.run_at - ran.clock <= timedelta(seconds=5)
    assert waited.run_at <= waited.clock


def test_what_we_ended_ourselves_is_charged_nothing(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(1)
    tables.seat(jobs)
    tables.region.mark(0, State.RUNNING)
    tables.rescuer.add(fallen(tables, how=None, why="stopped for a test", ours=True))
    tables.rescuer.rescue()
    assert (states(engine, jobs), causes(engine, jobs)) == ([("ready", 0, 0, 1)], [["stopped"]])


def test_a_process_that_failed_by_itself_is_a_loss_and_no_witnessed_death(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(1)
    tables.seat(jobs)
    tables.region.mark(0, State.RUNNING)
    tables.rescuer.add(fallen(tables, how=None, why="its worker process failed"))
    tables.rescuer.rescue()
    assert (states(engine, jobs), causes(engine, jobs)) == ([("ready", 0, 1, 1)], [["worker failed"]])


def test_a_torn_seat_counts_as_running(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(2)
    tables.seat(jobs)
    at = tables.region._seats
    tables.region._memory[at : at + 4] = b"\xff" * 4
    tables.rescuer.add(fallen(tables))
    tables.rescuer.rescue()
    assert states(engine, jobs) == [("ready", 0, 1, 1), ("ready", 0, 0, 1)]


@on_postgresql
def test_a_row_that_somebody_holds_keeps_neither_the_others_nor_the_heartbeat(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(3)
    tables.seat(jobs)
    tables.region.mark(1, State.RUNNING)
    gone = fallen(tables)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", jobs[1].id)
        begun = time.monotonic()
        tables.rescuer.add(gone)
        tables.rescuer.rescue()
        assert time.monotonic() - begun < 1
        assert [status for status, *_ in states(engine, jobs)] == ["ready", "running", "ready"]
        assert tables.rescuer.waiting
    tables.rescuer.rescue()
    assert states(engine, jobs)[1] == ("ready", 0, 1, 1)
    assert not tables.rescuer.waiting


@on_postgresql
def test_nobody_gets_hold_of_a_row_between_the_look_whether_it_is_free_and_its_end(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(engine, 2)
    real, free = rescue.locked, []

    def locked(*given: Any) -> set[int]:
        found = real(*given)
        free.extend(other.sql("SELECT id FROM django_jobs_job FOR UPDATE SKIP LOCKED"))
        return found

    monkeypatch.setattr(rescue, "locked", locked)
    assert rescue.give_back(engine, [job.run for job in jobs], 10)
    assert (free, states(engine, jobs)) == ([], [("ready", 0, 0, 1)] * 2)


def test_after_ten_losses_in_a_row_a_job_is_dead(engine: Engine) -> None:
    claimed(engine, 1)
    for number in range(1, 11):
        Job.objects.using(engine.alias).update(locked_until=Now() - timedelta(seconds=1))
        assert rescue.reap(engine, 10) == 1
        row = Job.objects.using(engine.alias).get()
        assert (row.status, row.losses, row.attempts) == ("dead" if number == 10 else "ready", number, 0)
        # From the second on it is to be run alone.
        assert len(claim(engine, 1)) == (number == 1)
        assert len(claim_suspect(engine)) == (1 < number < 10)
    assert row.last_error.startswith("Lost 10 times in a row, never seen to end.")
    assert len(row.history) == 10


def test_one_job_that_cannot_be_taken_back_does_not_keep_the_others(engine: Engine) -> None:
    jobs = claimed(engine, 5)
    rows = Job.objects.using(engine.alias)
    rows.update(locked_until=Now() - timedelta(seconds=1))
    rows.filter(pk=jobs[2].id).update(history={"edited": "by hand"})
    assert rescue.reap(engine, 10) == 4
    assert [status for status, *_ in states(engine, jobs)] == ["ready", "ready", "running", "ready", "ready"]


# Who is kept alive.


def test_only_what_is_in_a_seat_is_kept_alive(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(4)
    tables.seat(jobs[:3])
    tables.region.mark(1, State.RUNNING)
    tables.region.mark(2, State.RETURNED)
    rows = Job.objects.using(engine.alias)
    rows.update(locked_until=Now() - timedelta(seconds=1))  # expired, and the token is still the row's
    before = time.monotonic()
    tables.pulse.beat()
    kept = rows.filter(locked_until__gt=Now() + timedelta(seconds=20)).values_list("pk", flat=True)
    assert sorted(kept) == [job.id for job in jobs[:3]]
    assert before <= tables.map.last_beat <= time.monotonic()


@pytest.mark.parametrize(("count", "young"), [(FEW, True), (FEW + 1, False)])
def test_of_many_runs_only_those_that_were_not_claimed_a_moment_ago_cost_a_heartbeat(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, count: int, young: bool
) -> None:
    tables = Tables(engine)
    jobs = tables.claimed(count)
    tables.seat(jobs)
    interval = tables.plan.settings.heartbeat
    tables.region.take([(0, jobs[0].id, jobs[0].token)], 1, time.monotonic() - 0.6 * interval)
    extended: list[Run] = []
    real = engine.extend

    def extend(runs: list[Run], lease: float) -> dict[int, bool]:
        extended.extend(runs)
        return real(runs, lease)

    monkeypatch.setattr(engine, "extend", extend)
    tables.pulse.beat()
    assert sorted(extended) == sorted(job.run for job in (jobs if young else jobs[:1]))


def test_a_run_that_has_committed_its_own_end_has_lost_no_lease(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(engine)
    (job,) = tables.claimed(1)
    tables.seat([job])
    tables.region.mark(0, State.RUNNING)
    engine.complete([Done(job.run, None)])
    tables.pulse.beat()
    assert not tables.region.run_stopped(0, job.id, job.token)
    assert [record.message for record in caplog.records if "is told" in record.message] == []


def test_a_run_whose_job_is_no_longer_its_is_told_to_stop_and_its_successor_in_the_seat_is_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(engine)
    lost, ended, successor = tables.claimed(3)
    tables.seat([lost, ended])
    for number in range(2):
        tables.region.mark(number, State.RUNNING)
    rows = Job.objects.using(engine.alias)
    rows.filter(pk__in=[lost.id, ended.id]).update(
        status="ready",
        locked_by=None,
        locked_until=None,
        history=[{"run": 1, "cause": LEASE_RAN_OUT, "error": "", "worker": "", "seconds": 1.0}],
    )
    real = engine.extend

    def extend(runs: Any, lease: float) -> dict[int, bool]:
        # While the statement was under way, a job ended and another with the same token took its seat.
        tables.seat([successor], first=1)
        tables.region.mark(1, State.RUNNING)
        return real(runs, lease)

    monkeypatch.setattr(engine, "extend", extend)
    tables.pulse.beat()
    tables.pulse.beat()
    assert tables.region.run_stopped(0, lost.id, lost.token)
    assert not tables.region.run_stopped(1, successor.id, successor.token)
    assert [record.message.split(" is told")[0] for record in caplog.records if "is told" in record.message] == [
        f"Lost lease: run 1 of job {lost.id}"
    ]


def test_a_new_child_in_a_dead_ones_region_is_left_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(engine)
    old = tables.child
    new = Child(index=0, incarnation="b" * 32, pid=1)
    jobs = claimed(engine, 1, f"{new.incarnation}:1")
    # It took the place between the look at who lives and the look at the seats.
    looks = [[old]]
    tables.pulse._living = lambda: looks.pop() if looks else [new]
    tables.seat(jobs)
    tables.region.mark(0, State.RUNNING)
    tables.pulse.beat()
    assert not tables.region.run_stopped(0, jobs[0].id, jobs[0].token)


def test_a_claim_that_is_not_started_for_long_goes_back_and_is_not_started_then(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    for number in range(2):
        leave_effect.enqueue(str(number))
    jobs = claim(engine, 2, f"{tables.child.incarnation}:1")
    tables.seat(jobs)
    tables.region.mark(1, State.RUNNING)
    monkeypatch.setattr(pulse, "UNSTARTED_SECONDS", -1.0)
    tables.pulse.beat()
    assert states(engine, jobs) == [("ready", 0, 0, 1), ("running", 0, 0, 1)]
    # Its thread comes to it after all.
    runner = Runner(engine, tables.plan.settings, "host:1")
    ended = worker._executor._run(runner, Assigned(0, jobs[0], time.monotonic()), 0)
    assert isinstance(ended, Ended)
    assert getattr(ended.outcome, "cause", "") == "released"
    assert not Effect.objects.using(engine.alias).exists()


@on_sqlite
def test_on_sqlite_a_running_job_that_is_in_no_seat_goes_back_after_two_looks(engine: Engine) -> None:
    tables = Tables(engine)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    jobs = tables.claimed(2)
    tables.seat(jobs[:1])
    heart._reap()
    assert states(engine, jobs) == [("running", 0, 0, 1)] * 2
    heart._reap()
    assert states(engine, jobs) == [("running", 0, 0, 1), ("ready", 0, 1, 1)]


@on_postgresql
def test_a_duty_that_fails_keeps_no_other_from_being_done(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(engine)
    tables.plan = plan(engine.alias, lease=0.6, heartbeat=0.2)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    monkeypatch.setattr(tables.rescuer, "rescue", lambda: 1 / 0)
    beats = threading.Semaphore(0)
    real = tables.pulse.beat

    def beat() -> None:
        real()
        beats.release()

    monkeypatch.setattr(tables.pulse, "beat", beat)
    (expired,) = claimed(engine, 1, "gone:1")
    Job.objects.using(engine.alias).update(locked_until=Now() - timedelta(seconds=1))
    heart.start()
    try:
        assert all(beats.acquire(timeout=5) for _ in range(5))
        wait_for(lambda: states(engine, [expired]) == [("ready", 0, 1, 1)], 5.0)
    finally:
        assert heart.end(5.0)
