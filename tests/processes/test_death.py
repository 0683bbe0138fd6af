"""Processes that are killed: what they held goes back at once, and nobody is blamed who was not running."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

from tests.app.jobs import leave_effect, nothing, wait_for_file
from tests.app.process_jobs import start_subprocess
from tests.harness import Tree, wait_for
from tests.processes.common import (
    LEASE_2,
    ends,
    lines,
    lives,
    on_postgresql,
    on_sqlite,
    session_pids,
    state,
    wait_for_effect,
    wait_seconds,
    wait_until_gone,
    with_processes,
)

pytestmark = with_processes


def test_jobs_of_a_killed_process_run_again_within_two_seconds_and_those_of_others_go_on(
    tree: Tree, tmp_path: Path
) -> None:
    path = tmp_path / "go"
    jobs = [wait_for_file.enqueue(str(number), str(path)) for number in range(3)]
    jobs.append(start_subprocess.enqueue("3", str(path)))
    # What ran in a process that died is run alone, by as many as are allowed.
    workers = tree.start("--processes", "2", "--threads", "2", settings={"SOLO_PROCESSES": 2})
    pids = {job: wait_for_effect(tree, f"{number}:start") for number, job in enumerate(jobs[:3])}
    subprocess = wait_for_effect(tree, "3:start")
    (own,) = [pid for pid in workers.worker_pids() if subprocess in _children(pid)]
    killed = [*(job for job, pid in pids.items() if pid == own), jobs[3]]
    assert len(killed) == 2
    os.kill(own, signal.SIGKILL)
    for job in killed:
        wait_for_effect(tree, f"{jobs.index(job)}:start", run=2, timeout=2.0)
    wait_for(lambda: not lives(subprocess), 2.0, "the subprocess of the killed run ends with it")
    path.touch()
    for job in jobs:
        tree.wait_for_status(job, "done")
        again = job in killed
        assert state(job) == ("done", 0, 0, 2 if again else 1)
        assert ends(job) == ([(1, "died")] if again else [])
        assert not again or job.history[0]["error"] == "The worker process died: signal 9 (SIGKILL)."
    ignored = jobs[3].result
    assert isinstance(ignored, int)
    assert ignored & (1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1) == 0, "a subprocess ignores signals"
    assert workers.stop() == 0


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@on_postgresql
def test_jobs_of_a_killed_tree_are_run_by_another_within_a_lease_and_a_sweep(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "go"
    job = wait_for_file.enqueue("a", str(path))
    first = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start")
    second = tree.start(settings=LEASE_2)
    second.wait_until_ready()
    # It may take back others' jobs only after a lease of its own.
    first.signal_tree(signal.SIGKILL)
    wait_for_effect(tree, "a:start", run=2, timeout=2 + 2 + 1)
    path.touch()
    tree.wait_for_status(job, "done")
    assert state(job) == ("done", 0, 0, 2)
    assert ends(job) == [(1, "lease ran out")]
    assert second.stop() == 0


@on_sqlite
def test_a_file_has_one_tree_and_the_next_takes_up_what_a_killed_one_left(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "go"
    job = wait_for_file.enqueue("a", str(path))
    first = tree.start()
    wait_for_effect(tree, "a:start")
    second = tree.run("runworkers")
    assert second.returncode == 2
    assert f"Another runworkers (pid {first.pid}) serves" in second.stderr
    first.signal_tree(signal.SIGKILL)
    third = tree.start()
    wait_for_effect(tree, "a:start", run=2)
    path.touch()
    tree.wait_for_status(job, "done")
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert third.stop() == 0


@on_postgresql
def test_a_process_that_keeps_dying_is_restarted_more_and_more_slowly(tree: Tree) -> None:
    workers = tree.start()
    for number in range(4):
        (pid,) = workers.wait_until_ready()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in workers.worker_pids(), what="its row is gone")  # noqa: B023
        assert len(lines(workers, " died: signal 9")) == number + 1
    starts = [line[11:23] for line in lines(workers, " is ready")]
    pauses = [_milliseconds(later) - _milliseconds(earlier) for earlier, later in pairwise(starts)]
    assert pauses[0] < 500 <= pauses[-1], pauses
    job = nothing.enqueue()
    tree.wait_for_status(job, "done")
    assert workers.stop() == 0


def _milliseconds(clock: str) -> int:
    hours, minutes, seconds = clock.replace(",", ".").split(":")
    return round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000)


def test_orphans_of_a_killed_supervisor_claim_nothing_and_are_gone_before_their_leases(
    tree: Tree, tmp_path: Path
) -> None:
    paths = [tmp_path / "short", tmp_path / "long"]
    short, long = (wait_for_file.enqueue(path.name, str(path)) for path in paths)
    first = tree.start("--threads", "3", settings=LEASE_2)
    for path in paths:
        wait_for_effect(tree, f"{path.name}:start")
    os.kill(first.pid, signal.SIGKILL)
    wait_seconds(0.3)  # a process that was just told of a job looks for a moment longer; then it has heard
    waiting = leave_effect.enqueue("waiting")
    paths[0].touch()
    tree.wait_for_status(short, "done")
    wait_until_gone(first, timeout=2 * 2 / 3 + 1)
    assert state(waiting) == ("ready", 0, 0, 0)
    assert state(long) == ("running", 0, 0, 1)
    first.process.wait()
    second = tree.start(settings=LEASE_2)
    paths[1].touch()
    for job in (waiting, long):
        tree.wait_for_status(job, "done")
    assert (state(long), ends(long)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert state(short) == ("done", 0, 0, 1)
    assert second.stop() == 0


@on_sqlite
def test_the_next_tree_on_a_file_waits_for_the_orphans_of_a_killed_supervisor(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "go"))
    first = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start")
    os.kill(first.pid, signal.SIGKILL)
    second = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start", run=2)
    assert session_pids(first.pid) == []
    (tmp_path / "go").touch()
    tree.wait_for_status(job, "done")
    assert state(job) == ("done", 0, 0, 2)
    assert second.stop() == 0


def test_after_the_death_of_the_template_all_starts_anew_and_no_attempt_is_charged(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "go"
    job = wait_for_file.enqueue("a", str(path))
    workers = tree.start("--processes", "2")
    before = workers.wait_until_ready(2)
    wait_for_effect(tree, "a:start")
    _, template, *_ = workers.tree_pids()
    os.kill(template, signal.SIGKILL)
    wait_for_effect(tree, "a:start", run=2, timeout=5.0)
    path.touch()
    tree.wait_for_status(job, "done")
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "worker failed")])
    assert job.history[0]["error"] == "The run was lost: the template process died."
    wait_for(lambda: len(set(workers.worker_pids()) - set(before)) == 2, what="new worker processes")
    assert not any(lives(pid) for pid in before)
    assert workers.stop() == 0


@on_postgresql
def test_with_supervisor_and_template_killed_at_once_no_worker_process_lives_on(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    workers = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start")
    supervisor, template, *_ = workers.tree_pids()
    for pid in (template, supervisor):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not session_pids(workers.pid), 1.0, "all are gone")
    second = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start", run=2)
    (tmp_path / "never").touch()
    tree.wait_for_status(job, "done")
    assert second.stop() == 0


@on_postgresql
def test_a_template_that_is_stopped_is_replaced(tree: Tree) -> None:
    workers = tree.start()
    (worker,) = workers.wait_until_ready()
    _, template, *_ = workers.tree_pids()
    os.kill(template, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    job = nothing.enqueue()
    tree.wait_for_status(job, "done", timeout=15.0)
    assert lines(workers, "The template process died")
    assert workers.stop() == 0
