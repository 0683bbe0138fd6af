"""Acts that meet workers and each other in the middle of something, and waiting for the end of a job."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_jobs import (
    InvalidJob,
    JobDoesNotExist,
    StateConflict,
    WaitTimeout,
)
from django_jobs.engines.values import Done, Run
from django_jobs.models import Job
from django_jobs.queue import operate
from tests.acts import FINAL, acts, in_state, line
from tests.app.jobs import nothing
from tests.engines.common import (
    beside_others,
    claim,
    claim_one,
    clock,
    on_postgresql,
    row,
    settled,
    sql,
)
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine

# Races, with a second session that is in the middle of something.


@on_postgresql
@beside_others
@pytest.mark.parametrize("ends", [True, False])
def test_a_cancel_that_meets_a_claim_asks_its_run_to_stop(engine: Engine, ends: bool) -> None:
    job = nothing.enqueue()
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(lambda: claim(engine))
        late = person.start(partial(operate.cancel, job.pk))
        wait_for_blocked()
        other.commit() if ends else other.rollback()
        assert late.result(10) == ("asked" if ends else "cancelled")
    assert job.refresh().status == ("running" if ends else "cancelled")


@on_postgresql
@beside_others
def test_a_cancel_that_meets_the_end_of_a_run_is_refused_and_changes_nothing(engine: Engine) -> None:
    job = in_state(engine, "running")
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(lambda: engine.complete([Done(Run(job.pk, 1, str(job.locked_by)), '"r"')]))
        late = person.start(partial(operate.cancel, job.pk))
        wait_for_blocked()
        other.commit()
        with pytest.raises(StateConflict, match="is done already"):
            late.result(10)
    assert (job.refresh().status, job.cancel_reason, job.result) == ("done", None, "r")


@on_postgresql
@beside_others
@pytest.mark.parametrize("ends", [True, False])
def test_of_two_who_ask_a_run_to_stop_at_once_the_first_ones_words_are_kept(engine: Engine, ends: bool) -> None:
    job = in_state(engine, "running")
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(partial(operate.cancel, job.pk, by="ada"))
        late = person.start(partial(operate.cancel, job.pk, by="bob"))
        wait_for_blocked()
        other.commit() if ends else other.rollback()
        assert late.result(10) == "asked"
    said = "by ada" if ends else "by bob"
    assert (job.refresh().cancel_reason, acts(job)) == (said, [(1, "asked to stop", said)])


@on_postgresql
@beside_others
def test_a_cancel_that_meets_a_whole_run_sees_the_job_as_it_is_now_and_keeps_the_runs_line(engine: Engine) -> None:
    job = nothing.enqueue()

    def run() -> None:
        run = claim_one(engine)
        engine.settle([settled(run, counts="attempt", error="no", entry=line(run))], 10)

    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(run)
        late = person.start(partial(operate.cancel, job.pk, why="enough"))
        wait_for_blocked()
        other.commit()
        assert late.result(10) == "cancelled"
    assert (job.refresh().status, job.attempts) == ("cancelled", 1)
    assert acts(job) == [(1, "raised", "no"), (1, "called off", "enough")]


@beside_others
def test_two_who_requeue_a_job_at_once_requeue_it_once(engine: Engine) -> None:
    job = in_state(engine, "dead")

    def attempt() -> bool:
        try:
            operate.requeue(job.pk)
        except StateConflict:
            return False
        return True

    assert sorted(together([attempt] * 4)) == [False, False, False, True]
    assert [line["cause"] for line in job.refresh().history] == ["raised", "requeued"]


@beside_others
def test_a_requeue_beside_workers_that_claim_and_end_runs_the_job_once_more(engine: Engine) -> None:
    job = in_state(engine, "dead")
    stop = threading.Event()

    def work(number: int) -> int:
        ran = 0
        while not stop.is_set():
            for claimed in claim(engine, 1, locked_by=f"w:{number}"):
                engine.complete([Done(claimed.run, None)])
                ran += 1
        return ran

    def person() -> int:
        try:
            for _ in range(10):
                while job.refresh().status not in FINAL:
                    pass
                operate.requeue(job.pk)
            while job.refresh().status not in FINAL:
                pass
        finally:
            stop.set()
        return 0

    calls: list[Callable[[], int]] = [partial(work, 1), partial(work, 2), person]
    ran = together(calls)
    assert (sum(ran), job.refresh().token) == (10, 11)


@on_postgresql
@beside_others
def test_a_row_or_key_that_somebody_holds_is_not_waited_for_for_ever(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.2}
    once = nothing.using(idempotency_key="k", unique="unfinished")
    first = once.enqueue(1)
    engine.complete([Done(claim_one(engine), None)])
    waits = nothing.enqueue()
    with session(engine.alias) as other:
        other.begin()
        other.do(lambda: once.enqueue(2))
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", waits.pk)
        for act in (first.requeue, waits.cancel):
            with transaction.atomic(using=engine.alias):
                with pytest.raises(StateConflict, match=r"did not end within 0\.2 s \(ENQUEUE_TIMEOUT\)"):
                    act()
                assert sql(engine, "SELECT current_setting('lock_timeout')") == [("0",)]
        other.rollback()
    assert (first.requeue().status, waits.cancel().status) == ("ready", "cancelled")


# Waiting.


@beside_others
@pytest.mark.parametrize("status", FINAL)
def test_a_wait_is_over_soon_after_the_job_ended_in_whatever_way(engine: Engine, status: str) -> None:
    job = in_state(engine, "running")
    run = Run(job.pk, 1, str(job.locked_by))

    def finish() -> float:
        threading.Event().wait(1.0)
        if status == "done":
            engine.complete([Done(run, '"r"')])
        else:
            engine.settle([settled(run, status=status)], 10)
        return 0.0

    def wait() -> float:
        assert operate.wait(Job.objects.using(engine.alias).get(pk=job.pk), 30).status == status
        finished_at = row(engine, job.pk)["finished_at"]
        return float((clock(engine) - finished_at).total_seconds())

    _, late = together([finish, wait])
    assert late < 2.0
    assert operate.LONGEST_WAIT < 0.5


@beside_others
def test_a_wait_that_is_too_long_says_why_the_job_waits(engine: Engine) -> None:
    job = nothing.enqueue()
    with pytest.raises(
        WaitTimeout, match=rf"Job {job.pk} has not ended within 0\.1 s: Due for .* no worker is running"
    ):
        job.wait(0.1)
    with pytest.raises(TimeoutError):
        job.wait(0)
    job.cancel()
    assert job.wait(0) is job


@beside_others
@pytest.mark.parametrize("value", [-1, float("nan"), 10**12])
def test_a_wait_of_no_time_that_there_is_is_refused(engine: Engine, value: float) -> None:
    with pytest.raises(InvalidJob, match=r"timeout is .*; give seconds from 0"):
        nothing.enqueue().wait(value)


@beside_others
def test_a_wait_inside_a_transaction_is_refused(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        job = nothing.enqueue()
        with pytest.raises(InvalidJob, match=r"inside a transaction: no worker sees the job before it commits"):
            job.wait(1)


@beside_others
def test_a_wait_for_a_deleted_job_says_that_it_is_gone(engine: Engine) -> None:
    job = nothing.enqueue()
    Job.objects.using(engine.alias).filter(pk=job.pk).delete()
    with pytest.raises(JobDoesNotExist, match="it was deleted"):
        job.wait(1)
