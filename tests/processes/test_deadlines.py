"""Handlers that go on after their deadline are ended, each as it can be, and what runs beside them is not harmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_jobs import JobFunction
from django_jobs.models import Job
from tests.app.deadline_jobs import (
    ask_for_long,
    block_the_loop,
    catch_cancellations,
    catch_everything,
    look_and_retry,
    match_for_long,
    sleep_asynchronously,
    sleep_in_one_call,
    sleep_in_python,
)
from tests.app.jobs import leave_effect, nothing, stop_when_asked, wait_for_file
from tests.app.process_jobs import hold_in_one_call
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import (
    effects,
    ends,
    lines,
    lives,
    on_postgresql,
    state,
    wait_for_effect,
    with_processes,
)

pytestmark = with_processes
# Half a second instead of five before each next step.
SOON = {"DJANGO_JOBS_TEST_PATIENCE": "0.5"}
Hanging = JobFunction[..., ..., Any]


def start(tree: Tree, *options: str, **settings: Any) -> RunWorkers:
    return tree.start(*options, settings={"THREADS": 4, **settings}, env=SOON)


def beside_three(tree: Tree, path: Path) -> list[Job]:
    """Enqueue three jobs that run until a file is there."""
    return [wait_for_file.using(priority=10).enqueue(f"beside {number}", str(path)) for number in range(3)]


def wait_until_started(tree: Tree, jobs: list[Job]) -> int:
    """Return the pid that runs them."""
    return {wait_for_effect(tree, f"{job.args[0]}:start") for job in jobs}.pop()


def assert_ended_late(job: Job, run: int = 1) -> None:
    """It was charged one attempt, and nothing else."""
    assert state(job) == ("dead", 1, 0, run)
    assert ends(job) == [(run, "deadline")]
    assert job.history[0]["error"].startswith("The run passed its deadline of 0.2 s")
    assert job.last_error.startswith("The run passed its deadline of 0.2 s")


@pytest.mark.parametrize(
    ("hanging", "cleans_up"),
    [(sleep_in_python, True), (ask_for_long, False), (sleep_asynchronously, True)],
    ids=["python", "statement", "async"],
)
def test_a_run_that_can_be_ended_is_and_its_process_goes_on(
    tree: Tree, tmp_path: Path, hanging: Hanging, cleans_up: bool
) -> None:
    beside = beside_three(tree, tmp_path / "go")
    workers = start(tree)
    pid = wait_until_started(tree, beside)
    jobs = [hanging.using(timeout=0.2, max_attempts=1).enqueue(f"late {number}") for number in range(3)]
    for job in jobs:
        tree.wait_for_status(job, "dead", timeout=15.0)
        assert_ended_late(job)
        assert cleans_up == bool(effects(tree, key=f"{job.args[0]}:cleaned"))
    # The thread that ran them runs others, on new connections.
    after = [leave_effect.enqueue(f"after {number}") for number in range(5)]
    for job in after:
        tree.wait_for_status(job, "done")
        assert wait_for_effect(tree, job.args[0]) == pid
    (tmp_path / "go").touch()
    for job in beside:
        tree.wait_for_status(job, "done")
    assert {state(job) for job in beside + after} == {("done", 0, 0, 1)}
    assert workers.worker_pids() == [pid]
    assert workers.stop() == 0


@on_postgresql
@pytest.mark.parametrize(
    "hanging",
    [catch_everything, sleep_in_one_call, catch_cancellations, block_the_loop],
    ids=["catches", "one call", "async catches", "async blocks"],
)
def test_a_run_that_cannot_be_ended_costs_its_process_once_all_others_have_finished(
    tree: Tree, tmp_path: Path, hanging: Hanging
) -> None:
    beside = beside_three(tree, tmp_path / "go")
    workers = start(tree, THREADS=5)  # one of them stays free
    pid = wait_until_started(tree, beside)
    late = hanging.using(timeout=0.2, max_attempts=1).enqueue("late")
    wait_for_effect(tree, "late:start")
    # Another process takes the place of its own at once; its job is nobody else's before it is dead.
    wait_for(lambda: len(workers.worker_pids()) == 2, what="a replacement")
    after = [leave_effect.enqueue(f"after {number}") for number in range(10)]
    for job in after:
        tree.wait_for_status(job, "done")
        assert wait_for_effect(tree, job.args[0]) != pid
    assert state(late) == ("running", 0, 0, 1)
    assert lives(pid)
    (tmp_path / "go").touch()
    for job in beside:
        tree.wait_for_status(job, "done")
    tree.wait_for_status(late, "dead")
    assert not lives(pid)
    assert_ended_late(late)
    assert {state(job) for job in [*beside, *after]} == {("done", 0, 0, 1)}
    assert effects(tree, key__startswith="beside 0") == [("beside 0:end", 1), ("beside 0:start", 1)]
    assert lines(workers, f"Worker process {pid} is replaced, because what it runs does not end at its deadline")
    assert len(workers.worker_pids()) == 1
    assert workers.stop() == 0


@pytest.mark.parametrize("hold", [hold_in_one_call, match_for_long], ids=["one call", "regular expression"])
@on_postgresql
def test_a_run_that_holds_the_interpreter_past_its_deadline_is_ended_with_its_process(
    tree: Tree, tmp_path: Path, hold: Hanging
) -> None:
    without = wait_for_file.using(timeout=None, priority=10).enqueue("without", str(tmp_path / "go"))
    workers = start(tree, DRAIN=600)
    pid = wait_until_started(tree, [without])
    late = hold.using(timeout=0.2, max_attempts=1).enqueue("late", 600)
    tree.wait_for_status(late, "dead")
    assert not lives(pid)
    assert_ended_late(late)
    assert lines(workers, f"Worker process {pid} does not answer; it is ended with what did not end at its deadline")
    (tmp_path / "go").touch()
    tree.wait_for_status(without, "done")
    # It may have been the one: nobody knows, and it would not end by a deadline of its own.
    assert (state(without), ends(without)) == (("done", 0, 0, 2), [(1, "worker failed")])
    assert workers.stop() == 0


@on_postgresql
def test_what_has_time_left_when_another_run_holds_the_interpreter_is_cut_uncharged_when_drain_is_over(
    tree: Tree, tmp_path: Path
) -> None:
    beside = beside_three(tree, tmp_path / "go")
    workers = start(tree, DRAIN=3)
    pid = wait_until_started(tree, beside)
    late = hold_in_one_call.using(timeout=0.2, max_attempts=1).enqueue("late", 600)
    after = leave_effect.using(delay=2).enqueue("after")
    tree.wait_for_status(after, "done")
    assert (lives(pid), state(late)) == (True, ("running", 0, 0, 1))
    tree.wait_for_status(late, "dead")
    assert not lives(pid)
    assert_ended_late(late)
    (tmp_path / "go").touch()
    for job in beside:
        tree.wait_for_status(job, "done")
    assert [(state(job), ends(job)) for job in beside] == [(("done", 0, 0, 2), [(1, "stopped")])] * 3
    assert workers.stop() == 0


@on_postgresql
def test_a_process_that_is_silent_is_left_alone_until_all_it_runs_is_late(tree: Tree, tmp_path: Path) -> None:
    patient = wait_for_file.using(timeout=60, priority=10).enqueue("patient", str(tmp_path / "go"))
    workers = start(tree)
    pid = wait_until_started(tree, [patient])
    holder = hold_in_one_call.using(timeout=0.2, max_attempts=1).enqueue("holder", 4)
    (tmp_path / "go").touch()
    tree.wait_for_status(patient, "done")
    tree.wait_for_status(holder, "dead", "done")
    assert (state(patient), wait_for_effect(tree, "patient:end")) == (("done", 0, 0, 1), pid)
    workers.stop()


@on_postgresql
def test_what_runs_beside_a_late_run_is_told_to_stop_and_then_cut_when_drain_is_over(
    tree: Tree, tmp_path: Path
) -> None:
    never = str(tmp_path / "never")
    cut = wait_for_file.using(priority=10).enqueue("cut", never)
    asked = stop_when_asked.using(priority=10).enqueue("asked")
    cancelled = sleep_asynchronously.using(priority=10).enqueue("cancelled")
    workers = start(tree, DRAIN=3, SHUTDOWN_GRACE=1)
    for key in ("cut", "asked", "cancelled"):
        pid = wait_for_effect(tree, f"{key}:start")
    late = catch_everything.using(timeout=0.2, max_attempts=1).enqueue("late")
    tree.wait_for_status(late, "dead")
    assert not lives(pid)
    assert_ended_late(late)
    (tmp_path / "never").touch()
    tree.wait_for_status(cut, "done")
    assert (state(cut), ends(cut)) == (("done", 0, 0, 2), [(1, "stopped")])
    assert cut.history[0]["error"] == "its process was replaced, and DRAIN (3 s) was over"
    wait_for_effect(tree, "asked:stopped")
    assert ends(asked.refresh())[0] == (1, "snoozed")
    # It could be cancelled, and so it was before the end.
    assert wait_for_effect(tree, "cancelled:cleaned") == pid
    assert (cancelled.refresh().attempts, ends(cancelled)[0]) == (0, (1, "stopped"))
    assert cancelled.history[0]["error"] == "its task was cancelled"
    assert lines(workers, f"DRAIN is over in worker process {pid}: 1 runs are cut")
    cancelled_again = wait_for_effect(tree, "cancelled:start", run=2)
    assert cancelled_again != pid
    workers.stop()


def test_a_burst_waits_for_a_process_that_is_being_replaced_and_counts_all(tree: Tree, tmp_path: Path) -> None:
    beside = beside_three(tree, tmp_path / "go")
    late = sleep_in_one_call.using(timeout=0.2, max_attempts=2).enqueue("late")
    workers = start(tree, "--burst")
    wait_until_started(tree, beside)
    wait_for(lambda: lines(workers, "is replaced, because"), what="the replacement")
    others = [nothing.enqueue(number) for number in range(20)]
    for job in others:
        tree.wait_for_status(job, "done")
    assert workers.process.poll() is None
    (tmp_path / "go").touch()
    assert workers.wait() == 0
    assert {state(job) for job in beside + others} == {("done", 0, 0, 1)}
    assert state(late)[1:3] in {(1, 0), (2, 0)}
    assert {cause for _, cause in ends(late)} == {"deadline"}
    summaries = [line.split("Last second: ")[1].split(" done")[0] for line in lines(workers, "Last second: ")]
    assert sum(int(number) for number in summaries if number.isdigit()) == 23


def test_what_a_handler_says_after_its_deadline_is_taken_at_its_word(tree: Tree) -> None:
    job = look_and_retry.using(timeout=0.2).enqueue("asked")
    workers = start(tree)
    wait_for_effect(tree, "asked:start")
    wait_for(lambda: state(job) == ("ready", 1, 0, 1), what="a retry")
    assert ends(job) == [(1, "retry")]
    assert workers.stop() == 0


def test_a_late_run_is_ended_as_late_when_the_workers_stop(tree: Tree) -> None:
    job = catch_everything.using(timeout=0.2).enqueue("late")
    workers = tree.start("--threads", "1", settings={"SHUTDOWN_GRACE": 2, "DRAIN": 60}, env=SOON)
    wait_for_effect(tree, "late:start")
    workers.stop()
    assert (state(job)[1:3], ends(job)) == ((1, 0), [(1, "deadline")])


@on_postgresql
def test_when_all_threads_are_late_their_process_is_ended_at_once(tree: Tree) -> None:
    jobs = [sleep_in_one_call.using(timeout=0.2, max_attempts=1).enqueue(f"late {number}") for number in range(12)]
    workers = start(tree, DRAIN=600)
    for job in jobs:
        tree.wait_for_status(job, "dead", timeout=40)
        assert_ended_late(job)
    assert len({wait_for_effect(tree, f"{job.args[0]}:start") for job in jobs}) == 3
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0
