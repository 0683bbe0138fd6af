"""Faults that a test has its jobs meet, and that a job replayed has one effect."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob
from django_jobs.models import Job
from django_jobs.testing import (
    WorkerLost,
    assert_takes_effect_once,
    database_away,
    enqueued,
    lease_lost,
    run_jobs,
    worker_lost,
)
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, effects, told


def history(job: Job) -> list[tuple[int, str]]:
    return [(line["run"], line["cause"]) for line in job.refresh().history]


@alone
def test_a_worker_is_lost_before_the_function_is_called(engine: Engine) -> None:
    jobs.leave.enqueue("x")
    with worker_lost(jobs.leave, at="start"):
        ran = run_jobs()
    assert (told(ran), effects(engine)) == ([("leave", "lost", 1), ("leave", "done", 2)], ["x"])


@pytest.mark.parametrize("atomic", [False, True])
def test_each_fault_ends_the_run_and_the_job_runs_again(both: bool, engine: Engine, atomic: bool) -> None:
    function = jobs.leave_atomically if atomic else jobs.leave
    for fault, cause, status in (
        (worker_lost, "died", "lost"),
        (database_away, "lease ran out", "lost"),
        (lease_lost, "lease ran out", "lost lease"),
    ):
        before = len(effects(engine))
        job = function.enqueue("x")
        with fault(function):
            ran = run_jobs()
        assert [one.status for one in ran] == [status, "done", *["done"] * atomic]
        assert (history(job), job.attempts, job.token) == ([(1, cause)], 0, 2)
        # What an atomic job wrote was rolled back with the end that was not stored.
        assert effects(engine)[before:] == (["x", "x follows"] if atomic else ["x", "x"])


@alone
def test_a_worker_is_lost_where_what_the_function_calls_says_so(engine: Engine) -> None:
    jobs.leave_once.enqueue("x")
    with mock.patch("tests.testing.kit_jobs.effect", side_effect=WorkerLost):
        ran = run_jobs(most=1)
    assert [*told(ran), *told(run_jobs())] == [("leave_once", "lost", 1), ("leave_once", "done", 2)]
    assert effects(engine) == ["x"]


@alone
def test_a_fault_is_met_by_its_type_so_many_times_and_one_that_is_not_met_is_an_error(engine: Engine) -> None:
    jobs.step.enqueue("step")
    jobs.leave.enqueue("leave")
    with lease_lost(jobs.leave, times=2):
        assert [one.status for one in run_jobs()] == ["done", "lost lease", "lost lease", "done"]
    for fault in (worker_lost, database_away, lease_lost):
        context: AbstractContextManager[None] = fault(jobs.leave)
        with pytest.raises(AssertionError, match=r"1 more run\(s\) of tests.testing.kit_jobs.leave"), context:
            run_jobs()
    with pytest.raises(InvalidJob, match="at='middle'"), worker_lost(at="middle"):  # type: ignore[arg-type]
        pass


@alone
def test_what_has_one_effect_whatever_is_lost_passes(engine: Engine, mailoutbox: list[Any]) -> None:
    other = jobs.leave.enqueue("other")
    for job in (
        jobs.leave_atomically.enqueue("atomic"),
        jobs.leave_once.enqueue("once"),
        jobs.ask.enqueue("a@b.example"),
    ):
        before = len(effects(engine))
        ran = assert_takes_effect_once(job)
        assert (ran.status, ran.run, len(effects(engine)) - before) == ("done", 3, job.type != jobs.ask.name)
    assert [(job.args, job.parked) for job in enqueued(jobs.leave)] == [(["other"], None), (["atomic follows"], None)]
    assert (other.refresh().token, len(mailoutbox)) == (0, 1)


@alone
def test_other_jobs_of_its_type_are_neither_run_nor_changed_by_it(engine: Engine) -> None:
    rows = Job.objects.using(engine.alias)
    for number, parked in enumerate((None, "pause", "type", "suspect")):
        rows.filter(pk=jobs.leave_once.using(priority=9).enqueue(f"other {number}").pk).update(parked=parked)
    jobs.leave_once.using(delay=60).enqueue("later")
    before = list(rows.order_by("pk").values("pk", "parked", "run_at", "token"))
    assert_takes_effect_once(jobs.leave_once.enqueue("mine"))
    assert effects(engine) == ["mine"]
    assert list(rows.ready().order_by("pk").values("pk", "parked", "run_at", "token")) == before


@alone
def test_what_has_two_effects_is_named(engine: Engine) -> None:
    with pytest.raises(AssertionError, match=r"in the runs 1, 2, 3 of 3\. Run 2 .* app.Effect: .*'x'.* jobs?"):
        assert_takes_effect_once(jobs.enqueue_step.enqueue("x"))
    with pytest.raises(AssertionError, match="changed 1 to 2"):
        assert_takes_effect_once(jobs.step.enqueue("y"), lambda: effects(engine).count("y"), replays=1)


@alone
def test_what_has_no_effect_or_does_not_end_well_does_not_pass(engine: Engine) -> None:
    with pytest.raises(AssertionError, match="had no effect in 3 runs"):
        assert_takes_effect_once(jobs.step.enqueue("x"), lambda: 1)
    with pytest.raises(AssertionError, match="not done by its last run: it is ready"):
        assert_takes_effect_once(jobs.end.enqueue("retry"))
    with pytest.raises(AssertionError, match=r"did not run to its end: it is lost .*attempt 1"):
        assert_takes_effect_once(jobs.fail_before.enqueue(2))
    with pytest.raises(AssertionError, match=r"did not run to its end: .*"):
        assert_takes_effect_once(jobs.step.using(delay=60).enqueue("z"))
    with pytest.raises(InvalidJob, match="replays=0"):
        assert_takes_effect_once(jobs.step.enqueue("z"), replays=0)
