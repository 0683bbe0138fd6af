"""Trees that are frozen, processes that are stopped, and handlers that do not let go of the interpreter."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models.functions import Now

from django_jobs import JobFunction
from django_jobs.models import Worker
from tests.app.jobs import hold_interpreter, leave_effect, nothing, wait_for_file
from tests.app.process_jobs import end_by_file, hold_in_one_call
from tests.harness import Tree, wait_for
from tests.processes.common import (
    LEASE_2,
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


@on_postgresql
def test_the_outcome_of_a_run_whose_lease_was_lost_is_refused(tree: Tree, tmp_path: Path) -> None:
    jobs = [end_by_file.enqueue(key, str(tmp_path)) for key in ("returns", "raises")]
    frozen = tree.start(settings=LEASE_2)
    for key in ("returns", "raises"):
        wait_for_effect(tree, f"{key}:start")
    frozen.signal_tree(signal.SIGSTOP)
    other = tree.start(settings=LEASE_2)
    for key in ("returns", "raises"):
        wait_for_effect(tree, f"{key}:start", run=2)
    (tmp_path / "returns.1").write_text("return")
    (tmp_path / "raises.1").write_text("raise")
    frozen.signal_tree(signal.SIGCONT)
    wait_for(lambda: len(lines(frozen, "its outcome is refused")) == 2, what="both outcomes are refused")
    assert all(
        line.split("WARNING")[1].strip().startswith("Lost lease: run 1 of job ") for line in lines(frozen, "refused")
    )
    for job in jobs:
        assert (state(job), ends(job)) == (("running", 0, 1, 2), [(1, "lease ran out")])
        (tmp_path / f"{job.args[0]}.2").write_text("return")
        tree.wait_for_status(job, "done")
        assert (state(job), job.result, len(job.history)) == (("done", 0, 0, 2), 2, 1)
    # It has only slept: none of its processes is replaced, and it works on.
    assert not lines(frozen, "has not answered")
    assert other.stop() == 0
    tree.wait_for_status(nothing.enqueue(), "done")
    wait_for(lambda: lines(frozen, "2 lost leases"), what="they are counted")
    assert frozen.stop() == 0


@pytest.mark.parametrize("hold", [hold_in_one_call, hold_interpreter], ids=["one call", "regular expression"])
def test_a_handler_that_holds_the_interpreter_for_three_leases_runs_once_and_so_do_all_others(
    tree: Tree, vendor: str, tmp_path: Path, hold: JobFunction[..., ..., None]
) -> None:
    seconds, lease = (
        (5, {"LEASE": 1.6, "HEARTBEAT": 0.5}) if vendor == "postgresql" else (3, {"LEASE": 1, "HEARTBEAT": 0.3})
    )
    workers = tree.start("--processes", "1", "--threads", "3", settings=lease)
    running = wait_for_file.enqueue("running", str(tmp_path / "go"))
    pid = wait_for_effect(tree, "running:start")
    # Once a type is measured as quick, more of it is claimed than there are free threads: what waits behind the holder.
    for number in range(30):
        # Of both lanes: one that is new to a process is found by its next look, and the holder would come too late.
        leave_effect.using(priority=number % 2).enqueue(f"measured {number}")
    wait_for(lambda: tree.count(status="done") == 30)
    with transaction.atomic(using=tree.alias):
        hold.using(priority=1).enqueue("holder", seconds)
        others = [leave_effect.enqueue(f"other {number}") for number in range(200)]
    assert wait_for_effect(tree, "holder:start") == pid
    ahead = tree.count(status="running")
    others += [leave_effect.enqueue(f"later {number}") for number in range(50)]
    if vendor == "postgresql":
        thief = tree.start(settings=lease)
    (tmp_path / "go").touch()
    for job in (running, *others):
        tree.wait_for_status(job, "done")
    wait_for(lambda: tree.count(status="done") == 282)
    assert ahead > 3, "none was claimed ahead"
    keys = [key for key, _ in effects(tree)]
    assert len(keys) == len(set(keys)) == 30 + 250 + 2 + 2
    assert {(job.losses, len(job.history)) for job in tree.jobs()} == {(0, 0)}
    assert {job.token for job in tree.jobs(type__in=[hold.name, wait_for_file.name])} == {1}
    assert not lines(workers, "has not answered")
    assert workers.stop() == 0
    if vendor == "postgresql":
        assert thief.stop() == 0


@on_postgresql
def test_a_worker_process_that_is_stopped_while_idle_is_replaced(tree: Tree) -> None:
    workers = tree.start(settings=LEASE_2)
    (pid,) = workers.wait_until_ready()
    tree.wait_for_status(nothing.enqueue(), "done")
    os.kill(pid, signal.SIGSTOP)
    job = nothing.enqueue()
    tree.wait_for_status(job, "done")
    assert (lives(pid), state(job)[1:3]) == (False, (0, 0))
    assert len(lines(workers, f"Worker process {pid} has not answered")) == 1
    assert workers.stop() == 0


@on_postgresql
def test_worker_processes_claim_nothing_while_their_supervisor_is_stopped(tree: Tree) -> None:
    workers = tree.start(settings=LEASE_2)
    workers.wait_until_ready()
    os.kill(workers.pid, signal.SIGSTOP)
    beaten = Worker.objects.using(tree.alias).filter(heartbeat_at__gt=Now() - timedelta(seconds=1.5))
    wait_for(lambda: not beaten.exists(), what="no heartbeat for over two thirds of the lease")
    job = leave_effect.enqueue("a")
    second = tree.start(settings=LEASE_2)
    tree.wait_for_status(job, "done")
    (pid,) = second.worker_pids()
    assert wait_for_effect(tree, "a") == pid
    assert second.stop() == 0
    os.kill(workers.pid, signal.SIGCONT)
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0
