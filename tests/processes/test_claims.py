"""Claims: those that got no answer, those that are started late, and none without a supervisor."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, ClaimOrder, ClaimResult
from django_jobs.models import Job
from django_jobs.models import Worker as WorkerRow
from django_jobs.workers import claims
from django_jobs.workers import looks as module
from django_jobs.workers.executor import Assigned
from django_jobs.workers.looks import Looks
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import SEATS, Phase
from django_jobs.workers.waking import FIRST_PAUSE, Alert
from django_jobs.workers.worker import Worker
from tests.app.jobs import leave_effect, nothing
from tests.app.models import Effect
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import Tables, claim, claimed, states
from tests.threads import Session

pytestmark = with_tables


def test_a_claim_that_was_made_although_no_answer_came_is_given_back_uncharged(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    jobs = [nothing.enqueue(number) for number in range(2)]
    real, lost = engine.claim, [True]

    def claim_without_answer(order: ClaimOrder) -> ClaimResult:
        found = real(order)
        if lost and lost.pop():
            raise OperationalError("connection reset by peer")
        return found

    monkeypatch.setattr(engine, "claim", claim_without_answer)
    with pytest.raises(OperationalError):
        worker._claimer.step()
    (unanswered,) = worker._claimer._unanswered
    assert {(job.refresh().status, job.locked_by) for job in jobs} == {("running", unanswered)}
    worker._claimer.step()  # gives them back, and claims them with another number
    assert {(job.refresh().status, job.token, job.attempts, job.losses) for job in jobs} == {("running", 2, 0, 0)}
    assert unanswered not in {job.locked_by for job in jobs}
    assert [seat.job_id for seat in tables.region.seats()] == [job.pk for job in jobs]


def test_a_claim_that_commits_late_is_given_back_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    monkeypatch.setattr(claims, "LOST_CHECK_SECONDS", 0.0)
    real = engine.claim
    monkeypatch.setattr(engine, "claim", lambda order: (_ for _ in ()).throw(OperationalError("reset")))
    made = nothing.enqueue()
    with pytest.raises(OperationalError):
        worker._claimer.step()
    monkeypatch.setattr(engine, "claim", real)
    Job.objects.using(engine.alias).filter(pk=made.pk).delete()
    worker._claimer.step()
    (unanswered,) = worker._claimer._unanswered
    late = claimed(engine, 2, unanswered)  # the server has only now come to it
    assert [status for status, *_ in states(engine, late)] == ["running", "running"]
    worker._claimer._idle_until = 0.0
    worker._claimer.step()
    assert {row[1:3] for row in states(engine, late)} == {(0, 0)}
    assert unanswered not in {job.locked_by for job in Job.objects.using(engine.alias).all()}


@pytest.mark.parametrize("taken", [False, True])
def test_a_claim_that_is_started_late_is_renewed_first(engine: Engine, taken: bool) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    leave_effect.enqueue("a")
    (job,) = claim(engine, 1, f"{tables.child.incarnation}:1")
    tables.seat([job])
    if taken:
        Job.objects.using(engine.alias).update(status="ready", locked_by=None, locked_until=None)
        claim(engine, 1, "other:1")
    assert (_run_late(worker, job), Effect.objects.using(engine.alias).count()) == (
        ("released", 0) if taken else ("done", 1)
    )


@on_postgresql
def test_a_claim_that_is_started_late_is_not_when_somebody_is_just_writing_its_row(
    engine: Engine, other: Session
) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    leave_effect.enqueue("a")
    (job,) = claim(engine, 1, f"{tables.child.incarnation}:1")
    tables.seat([job])
    other.begin()
    other.sql("UPDATE django_jobs_job SET status = 'ready', locked_by = NULL, locked_until = NULL")
    assert _run_late(worker, job) == "released"
    other.commit()
    assert not Effect.objects.using(engine.alias).exists()


def test_a_claim_that_is_started_late_is_not_when_its_job_was_cancelled(engine: Engine) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    made = leave_effect.enqueue("a")
    (job,) = claim(engine, 1, f"{tables.child.incarnation}:1")
    tables.seat([job])
    made.cancel()
    assert _run_late(worker, job) == "released"
    assert not Effect.objects.using(engine.alias).exists()


@pytest.mark.parametrize(("expires_in", "end"), [(9.0, "released"), (11.0, "done"), (None, "done"), (0.0, "expired")])
def test_a_claim_that_waited_is_not_started_after_its_time(engine: Engine, expires_in: float | None, end: str) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    leave_effect.enqueue("a")
    (job,) = claim(engine, 1, f"{tables.child.incarnation}:1")
    tables.seat([job])
    assert _run_late(worker, job._replace(expires_in=expires_in), waited=10.0) == end
    assert Effect.objects.using(engine.alias).exists() == (end == "done")


def test_a_claim_whose_answer_came_late_is_as_old_as_when_it_was_sent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Tables(engine).worker()
    nothing.enqueue()
    real, answered = engine.claim, 0.0

    def claim_slowly(order: ClaimOrder) -> ClaimResult:
        nonlocal answered
        found = real(order)
        answered = time.monotonic()
        return found

    monkeypatch.setattr(engine, "claim", claim_slowly)
    worker._claimer.step()
    (given,) = worker._executor.take_back()
    assert given.at < answered


def _run_late(worker: Worker, job: Claimed, waited: float = 60.0) -> str:
    """Start a claim that has waited for so many seconds; return how its run ended."""
    runner = Runner(worker._engine, worker._plan.settings, "host:1")
    ended = worker._executor._run(runner, Assigned(0, job, time.monotonic() - waited), 0)
    return str(getattr(ended.outcome, "cause", "done"))


def test_the_row_of_a_living_child_that_others_deleted_is_made_again(engine: Engine) -> None:
    tables = Tables(engine)
    tables.region.tick_claims()
    tables.pulse.beat()
    assert not WorkerRow.objects.using(engine.alias).exists()  # it starts, and will make its own row
    worker = tables.worker()
    worker._register()
    worker._register()  # the answer to the first may be lost
    made = WorkerRow.objects.using(engine.alias).get()
    assert made.heartbeat_at is not None
    plan = tables.plan
    assert (made.pk, made.threads, made.types, made.queues) == (
        tables.child.incarnation, plan.settings.threads, list(plan.types), plan.queues and list(plan.queues)
    )  # fmt: skip
    assert WorkerRow.objects.using(engine.alias).filter(queues__isnull=plan.queues is None).exists()
    WorkerRow.objects.using(engine.alias).all().delete()
    tables.map.beat(time.monotonic())
    worker._step()
    tables.pulse.beat()
    row = WorkerRow.objects.using(engine.alias).get()
    assert (row.pk, row.pid, row.threads) == (tables.child.incarnation, tables.child.pid, 2)


def test_a_worker_claims_nothing_while_leases_are_not_extended_and_says_so_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    nothing.enqueue()
    tables.map.beat(0.0)
    assert worker._step() > 0
    tables.map.beat(time.monotonic() - 21)
    for _ in range(9):
        assert worker._step() > 0
    assert tables.region.seats() == []
    assert len([record for record in caplog.records if "has not extended leases for 21 s" in record.message]) == 1
    tables.map.beat(time.monotonic() - 19)
    worker._step()
    assert len(tables.region.seats()) == 1


def test_what_was_claimed_ahead_goes_back_when_all_threads_are_busy_for_long(engine: Engine) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    tables.map.beat(time.monotonic())
    for _ in range(100):
        worker._pace.record(nothing.name, 0.001)
    worker._claimer._recent_types = {nothing.name}
    for number in range(50):
        nothing.enqueue(number)
    worker._step()  # its threads are not started: none of them takes a job
    assert worker._executor.in_hand == 50
    worker._claimer.given_at -= 4
    worker._step()
    assert worker._executor.in_hand == 50
    worker._claimer.given_at -= 2
    worker._give_back_what_waits()
    assert worker._executor.in_hand == 0
    worker._writer.start()
    worker._writer.finish()
    assert {job.status for job in Job.objects.using(engine.alias).all()} == {"ready"}
    assert (tables.region.seats(), len(worker._free)) == ([], SEATS)
    assert worker._claimer._wanted() == 2, "what was measured did not hold: no more than the threads"


def test_an_idle_worker_only_looks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    claimer = Tables(engine).worker()._claimer
    asked: list[str] = []
    for name in ("claim", "claim_parked", "look", "next_due"):
        monkeypatch.setattr(engine, name, _noting(asked, name, getattr(engine, name)))
    assert claimer.step() > 0
    assert asked[-1] == "look"
    asked.clear()
    for _ in range(5):
        assert claimer.step() > 0  # it rests
    assert asked == []
    for _ in range(5):
        claimer._idle_until = claimer._looks._at = 0.0
        assert claimer.step() > 0
    assert asked == ["look"] * 5
    nothing.enqueue()
    claimer._idle_until = claimer._looks._at = 0.0
    assert claimer.step() == 0
    assert asked[5:7] == ["look", "claim"]
    # Where it looked a moment ago, it looks only from where it was in the lanes it knows.
    asked.clear()
    while claimer.step() == 0:
        pass
    claimer._idle_until = 0.0
    asked.clear()
    assert claimer.step() > 0
    assert asked[0] == "next_due"  # in SQLite that is a look as well


def test_one_that_was_woken_for_a_job_rests_a_moment_after_it_and_does_not_claim_once_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = Tables(engine).worker()._claimer
    assert claimer.step() > 0
    nothing.enqueue()
    claimer._looks._at = 0.0
    claimer._look()  # it knows the lane
    claimer._parked_checked_at = 0.0  # it is long ago that it tried what is parked
    asked: list[str] = []
    for name in ("claim", "claim_parked", "look", "next_due"):
        monkeypatch.setattr(engine, name, _noting(asked, name, getattr(engine, name)))
    claimer.wake()
    assert 0 < claimer.step() <= FIRST_PAUSE
    assert claimer.idle
    assert asked == ["claim"]
    # Nobody told of this one: whether there is more is asked at once.
    claimer._parked_checked_at = time.monotonic()
    nothing.enqueue()
    claimer._alert = Alert()
    claimer._idle_until, claimer._looked_idle = 0.0, False
    assert claimer.step() == 0
    assert asked == ["claim"] * 2


def test_who_is_told_of_jobs_again_and_again_still_looks_for_what_no_claim_can_see(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = Tables(engine).worker()._claimer
    nothing.enqueue_many(nothing.call(number) for number in range(8))
    claimer._look()
    asked: list[str] = []
    monkeypatch.setattr(engine, "look", _noting(asked, "look", engine.look))
    claimer.wake()
    claimer.step()
    assert asked == []  # it most likely is in a lane that is known
    nothing.using(queue="new", priority=50).enqueue()
    for _ in range(3):
        claimer._executor.take_back()
        claimer._looks._at = time.monotonic() - 1.9
        claimer.wake()
        claimer.step()
    assert asked != []
    assert ("new", 50) in claimer._lanes._tracks


@pytest.mark.parametrize(
    ("took", "told", "blind", "seconds"),
    [
        (1.0, False, False, 10.0),
        (1.0, True, False, 2.0),
        (1.0, False, True, 2.0),
        (0.01, False, False, 0.9),
        (8.0, False, False, 16.0),
    ],
)
def test_slow_looks_are_made_seldom_and_never_so_seldom_that_a_job_waits_for_long(
    took: float, told: bool, blind: bool, seconds: float
) -> None:
    looks = Looks(1.0)
    looks._at = time.monotonic()
    looks._took.append(took)
    assert looks.wait(told=told, blind=blind) <= 0.9, "one slow look says nothing of the next"
    looks._took.append(took)
    assert looks.wait(told=told, blind=blind) == pytest.approx(seconds, abs=0.1)


def test_a_look_that_gets_no_answer_is_as_seldom_as_one_that_took_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    looks = Looks(1.0)

    def look() -> None:
        with looks.made():
            now[0] += 7.0
            raise OperationalError("too slow")

    for _ in range(2):
        with pytest.raises(OperationalError):
            look()
    assert looks.wait(told=False, blind=False) == 2 * 7.0 - 7.0


@on_postgresql  # in SQLite each claim is a look
def test_what_is_known_is_claimed_although_looks_get_no_answer_in_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = Tables(engine).worker()._claimer
    made = nothing.enqueue()
    claimer._look()
    monkeypatch.setattr(engine, "look", lambda *given: (_ for _ in ()).throw(OperationalError("too slow")))
    claimer._looks._at = 0.0
    claimer._looked_idle = True
    with pytest.raises(OperationalError):
        claimer.step()
    for _ in range(2):
        claimer.step()
    assert made.refresh().status == "running"


def test_who_helped_another_process_in_vain_does_not_hesitate_when_it_is_told_of_a_job(engine: Engine) -> None:
    claimer = Tables(engine).worker()._claimer
    for _ in range(5):
        claimer.step()
        claimer.help()
        assert not claimer.idle
        claimer.step()
    claimer.wake()
    assert not claimer._alert.is_contended
    assert not claimer.idle


def _noting(asked: list[str], name: str, real: Any) -> Any:
    def call(*given: Any) -> Any:
        asked.append(name)
        return real(*given)

    return call


def test_a_stop_gives_back_what_no_thread_has_started(engine: Engine) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    tables.map.beat(time.monotonic())
    for number in range(2):
        nothing.enqueue(number)
    worker._step()
    assert worker._executor.in_hand == 2
    tables.region.ask_to_stop()
    worker._writer.start()
    thread = threading.Thread(target=_stop, args=(worker,), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert {(job.status, job.attempts, job.losses) for job in Job.objects.using(engine.alias).all()} == {
        ("ready", 0, 0)
    }
    assert (tables.region.seats(), tables.region.phase) == ([], Phase.ENDED)


def _stop(worker: Worker) -> None:
    worker._stop()
    connections.close_all()
