"""Orderly stops: what may finish does, what may not goes back uncounted, and the exit code says which."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from django_jobs.models import Job
from tests.app.jobs import nothing, stop_when_asked, wait_for_file
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import (
    ends,
    lines,
    on_postgresql,
    session_pids,
    state,
    wait_for_effect,
    wait_until_gone,
    with_processes,
)
from tests.threads import session

pytestmark = with_processes


def test_short_runs_finish_and_a_long_one_goes_back_uncounted_when_the_grace_is_over(
    tree: Tree, tmp_path: Path
) -> None:
    path, never = str(tmp_path / "go"), str(tmp_path / "never")
    short = [wait_for_file.enqueue(f"short {number}", path) for number in range(2)]
    long = wait_for_file.enqueue("long", never)
    asked = stop_when_asked.enqueue("asked")
    due = {job.pk: job.run_at for job in (long, asked)}
    workers = tree.start("--processes", "2", "--threads", "2", settings={"SHUTDOWN_GRACE": 2})
    for key in ("short 0", "short 1", "long", "asked"):
        wait_for_effect(tree, f"{key}:start")
    queued = [nothing.enqueue(number) for number in range(100)]
    begun = time.monotonic()
    workers.signal(signal.SIGTERM)
    wait_for_effect(tree, "asked:stopped")
    (tmp_path / "go").touch()
    late = nothing.enqueue()
    for job in short:
        tree.wait_for_status(job, "done", timeout=2.0)
    assert workers.wait() == 3
    assert time.monotonic() - begun <= 2 + 2
    assert session_pids(workers.pid) == []
    assert {state(job) for job in [*queued, late]} == {("ready", 0, 0, 0)}
    assert (state(long), ends(long)) == (("ready", 0, 0, 1), [(1, "stopped")])
    assert long.history[0]["error"] == "stopped by a signal when the grace was over"
    assert (long.run_at, long.last_error) == (due[long.pk], "")
    assert (state(asked), ends(asked)) == (("ready", 0, 0, 1), [(1, "snoozed")])
    assert tree.count(status="running") == 0
    assert lines(workers, "The grace is over: 1 runs are cut")
    (tmp_path / "never").touch()
    again = tree.start("--burst", "--processes", "2")
    tree.wait_for_status(long, "done")
    for job in queued:
        tree.wait_for_status(job, "done")
    again.stop()


def test_a_second_signal_ends_the_grace(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    workers = tree.start(settings={"SHUTDOWN_GRACE": 60})
    wait_for_effect(tree, "a:start")
    begun = time.monotonic()
    workers.signal(signal.SIGTERM)
    wait_for(lambda: lines(workers, "SIGTERM: no more claims"))
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 3
    assert time.monotonic() - begun < 2
    assert session_pids(workers.pid) == []
    assert (state(job), ends(job)) == (("ready", 0, 0, 1), [(1, "stopped")])


@on_postgresql
def test_a_row_that_somebody_holds_at_the_stop_makes_it_no_stop_without_a_database(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    workers = tree.start(settings={"SHUTDOWN_GRACE": 0.2})
    wait_for_effect(tree, "a:start")
    with session(tree.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", job.pk)
        assert workers.stop() == 3
        assert state(job)[0] == "running"
        assert not lines(workers, "cannot be reached")
    Job.objects.using(tree.alias).all().delete()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_every_process_counts_once_and_a_cooperative_handler_makes_the_stop_clean(
    tree: Tree, tmp_path: Path, number: signal.Signals
) -> None:
    asked, short = stop_when_asked.enqueue("asked"), wait_for_file.enqueue("short", str(tmp_path / "go"))
    workers = tree.start("--threads", "2")
    for key in ("asked", "short"):
        wait_for_effect(tree, f"{key}:start")
    workers.signal_tree(number)
    wait_for_effect(tree, "asked:stopped")
    assert lines(workers, f"{number.name}: no more claims; runs may finish for 5 s")
    (tmp_path / "go").touch()
    assert workers.wait() == 0
    assert session_pids(workers.pid) == []
    assert state(asked) == ("ready", 0, 0, 1)
    assert state(short) == ("done", 0, 0, 1)
    assert not lines(workers, "The grace is over")


def catches(pid: int, number: int) -> bool:
    (mask,) = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in line]
    return bool(int(mask, 16) >> (number - 1) & 1)


# How far a start has come, in the order of it.
STARTS: dict[str, Callable[[RunWorkers], object]] = {
    "it handles signals": lambda workers: catches(workers.pid, signal.SIGTERM),
    "the template is there": lambda workers: len(workers.tree_pids()) > 1,
    "the first line is said": lambda workers: "Workers started" in workers.log,
    "a worker is forked": lambda workers: len(workers.tree_pids()) > 2,
    "a worker is ready": lambda workers: "is ready" in workers.log,
}


@on_postgresql
@pytest.mark.parametrize("mark", STARTS)
def test_a_signal_during_the_start_is_obeyed_and_leaves_nothing(tree: Tree, mark: str) -> None:
    jobs = [nothing.enqueue(number) for number in range(20)]
    workers = tree.start("--processes", "2")
    wait_for(lambda: STARTS[mark](workers), what=mark)
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 0
    assert session_pids(workers.pid) == []
    assert {state(job) for job in jobs} <= {("ready", 0, 0, 0), ("ready", 0, 0, 1), ("done", 0, 0, 1)}


@on_postgresql
def test_a_signal_before_django_is_set_up_ends_it_as_any_program_and_leaves_nothing(tree: Tree) -> None:
    workers = tree.start("--processes", "2")
    workers.signal(signal.SIGTERM)
    assert workers.wait() in (0, -signal.SIGTERM)
    wait_until_gone(workers, 2.0)


def test_an_idle_tree_stops_at_once_with_exit_0(tree: Tree) -> None:
    workers = tree.start("--processes", "2")
    workers.wait_until_ready(2)
    begun = time.monotonic()
    assert workers.stop() == 0
    assert time.monotonic() - begun < 1.5
    assert workers.worker_pids() == []
    assert workers.log.splitlines()[-1].endswith("Workers stopped (exit 0)")


def test_a_process_that_dies_during_the_stop_is_not_replaced(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    workers = tree.start()
    pid = wait_for_effect(tree, "a:start")
    workers.signal(signal.SIGTERM)
    wait_for(lambda: lines(workers, "SIGTERM: no more claims"))
    os.kill(pid, signal.SIGKILL)
    assert workers.wait(3.0) == 0
    assert (state(job), ends(job)) == (("ready", 0, 1, 1), [(1, "died")])
