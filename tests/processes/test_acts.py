"""Pausing, cancelling, requeueing and waiting beside real workers."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_jobs import pause, resume
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Done
from django_jobs.workers.executor import Assigned
from django_jobs.workers.runner import Runner
from tests.app.jobs import die, leave_effect, nothing, wait_for_file
from tests.app.models import Effect
from tests.app.process_jobs import end_when_asked
from tests.engines.common import clock
from tests.harness import Tree, wait_for
from tests.processes.common import (
    LEASE_2,
    effects,
    ends,
    lines,
    on_postgresql,
    state,
    wait_for_effect,
    with_processes,
)
from tests.processes.parts import Tables, claim, states

pytestmark = with_processes
WHAT: list[dict[str, Any]] = [{"queue": "default"}, {"type": leave_effect}]


# Pausing.


@pytest.mark.parametrize("what", WHAT, ids=["queue", "type"])
def test_nothing_of_what_is_paused_starts_until_it_is_resumed_in_whatever_tree(
    tree: Tree, vendor: str, what: dict[str, Any], tmp_path: Path
) -> None:
    trees = [tree.start(), tree.start()] if vendor == "postgresql" else [tree.start("--processes", "2")]
    wait_for(lambda: sum(len(found.worker_pids()) for found in trees) == 2)
    before = wait_for_file.enqueue("before", str(tmp_path / "go"))
    wait_for_effect(tree, "before:start")
    pause(**what, why="the printer is out of paper", by="ada")
    held = [leave_effect.enqueue(f"held {number}") for number in range(20)]
    # Others are taken meanwhile, and what ran when the pause came goes on.
    for _ in range(3):
        for job in [nothing.using(queue="other").enqueue(number) for number in range(10)]:
            tree.wait_for_status(job, "done")
    (tmp_path / "go").touch()
    tree.wait_for_status(before, "done")
    assert {state(job) for job in held} == {("ready", 0, 0, 0)}
    assert "paused by ada" in held[0].explain()
    assert "until it is resumed (the printer is out of paper)" in held[0].explain()
    resume(**what)
    for job in held:
        tree.wait_for_status(job, "done")
    assert effects(tree, key__startswith="held") == sorted((f"held {number}", 1) for number in range(20))
    assert [found.stop() for found in trees] == [0] * len(trees)


@pytest.mark.parametrize("what", WHAT, ids=["queue", "type"])
def test_a_pause_ends_by_itself(tree: Tree, what: dict[str, Any]) -> None:
    workers = tree.start()
    workers.wait_until_ready()
    found = pause(**what, until=2)
    job = leave_effect.enqueue("a")
    tree.wait_for_status(nothing.using(queue="other").enqueue(), "done")
    tree.wait_for_status(job, "done")
    assert found.until is not None
    assert job.last_started_at is not None
    assert timedelta(0) <= job.last_started_at - found.until < timedelta(seconds=10)
    assert workers.stop() == 0


def test_a_burst_does_not_wait_for_what_is_paused(tree: Tree) -> None:
    held, job = leave_effect.enqueue("a"), nothing.enqueue()
    pause(type=leave_effect)
    assert tree.start("--burst").wait() == 0
    assert (state(held), held.parked, state(job)) == (("ready", 0, 0, 0), "pause", ("done", 0, 0, 1))
    resume(type=leave_effect)
    assert tree.start("--burst").wait() == 0
    assert state(held) == ("done", 0, 0, 1)


# Cancelling.

END = {
    "return": [],
    "raise": [(1, "raised")],
    "snooze": [(1, "snoozed")],
    "retry": [(1, "retry")],
    "fail": [(1, "failed")],
    "cancel": [(1, "cancelled")],
}


def test_a_running_handler_is_told_within_a_heartbeat_and_however_it_ends_its_job_is_cancelled(tree: Tree) -> None:
    jobs = {how: end_when_asked.enqueue(how, how) for how in END}
    workers = tree.start("--threads", str(len(jobs)))
    for how in jobs:
        wait_for_effect(tree, f"{how}:start")
    began = time.monotonic()
    for job in jobs.values():
        job.cancel(by="ada", why="not wanted")
        job.cancel(by="bob")
    for how, job in jobs.items():
        tree.wait_for_status(job, "cancelled")
        assert (how, ends(job)) == (how, [(1, "asked to stop"), *END[how]])
        assert (job.token, job.cancel_reason) == (1, "by ada: not wanted")
        assert job.result == ("half done" if how == "return" else None)
        assert job.explain().startswith("Cancelled ")
        assert " ago by ada: not wanted; its run " in job.explain()
    assert time.monotonic() - began < 10  # the heartbeat is 1 s
    assert len(effects(tree)) == 2 * len(jobs)
    assert len(lines(workers, "is told to stop: the job was cancelled")) == len(jobs)
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0


def test_a_job_whose_process_dies_after_it_was_cancelled_does_not_run_again(tree: Tree) -> None:
    job = end_when_asked.enqueue("a", "die")
    workers = tree.start()
    wait_for_effect(tree, "a:start")
    job.cancel()
    tree.wait_for_status(job, "cancelled")
    assert (state(job), ends(job)) == (("cancelled", 0, 1, 1), [(1, "asked to stop"), (1, "died")])
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0


@on_postgresql
def test_a_job_whose_lease_runs_out_after_it_was_cancelled_does_not_run_again(tree: Tree) -> None:
    job = end_when_asked.enqueue("a", "return")
    frozen = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start")
    frozen.signal_tree(signal.SIGSTOP)
    job.cancel()
    other = tree.start(settings=LEASE_2)
    tree.wait_for_status(job, "cancelled")
    assert (state(job), ends(job)) == (("cancelled", 0, 1, 1), [(1, "asked to stop"), (1, "lease ran out")])
    frozen.signal_tree(signal.SIGCONT)
    wait_for(lambda: len(lines(frozen, "its outcome is refused")) == 1)
    assert (state(job), job.result) == (("cancelled", 0, 1, 1), None)
    assert [found.stop() for found in (other, frozen)] == [0, 0]


@on_postgresql
def test_a_late_outcome_is_a_lost_lease_although_somebody_has_requeued_the_job_since(tree: Tree) -> None:
    job = end_when_asked.enqueue("a", "return")
    frozen = tree.start(settings=LEASE_2)
    wait_for_effect(tree, "a:start")
    frozen.signal_tree(signal.SIGSTOP)
    job.cancel()
    other = tree.start("--queues", "none", settings=LEASE_2)
    tree.wait_for_status(job, "cancelled")
    job.requeue()
    job.cancel()
    frozen.signal_tree(signal.SIGCONT)
    wait_for(lambda: len(lines(frozen, "its outcome is refused")) == 1)
    assert [found.stop() for found in (other, frozen)] == [0, 0]


def test_a_claim_whose_job_was_cancelled_before_it_started_is_not_started(engine: Engine) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    job = leave_effect.enqueue("a")
    (claimed,) = claim(engine, 1, f"{tables.child.incarnation}:1")
    tables.seat([claimed])
    job.cancel()
    tables.pulse.beat()
    ended = worker._executor._run(
        Runner(engine, tables.plan.settings, "host:1"), Assigned(0, claimed, time.monotonic()), 0
    )
    assert not isinstance(ended.outcome, Done)
    engine.settle([ended.outcome], 10)
    assert states(engine, [claimed]) == [("cancelled", 0, 0, 1)]
    assert not Effect.objects.using(engine.alias).exists()


# Requeueing and waiting.


def test_a_killer_that_is_requeued_is_dead_with_the_next_death_that_is_seen(tree: Tree) -> None:
    job = die.enqueue("a")
    workers = tree.start()
    tree.wait_for_status(job, "dead")
    assert state(job) == ("dead", 0, 2, 2)
    job.requeue(why="it was innocent")
    tree.wait_for_status(job, "dead")
    assert (state(job), ends(job)) == (("dead", 0, 2, 3), [(1, "died"), (2, "died"), (2, "requeued"), (3, "died")])
    assert workers.stop() == 0


def test_a_wait_is_over_soon_after_the_end(tree: Tree, engine: Engine) -> None:
    workers = tree.start()
    workers.wait_until_ready()
    job = nothing.enqueue(7)
    assert (job.wait(30).result, job.status) == (7, "done")
    assert job.finished_at is not None
    assert clock(engine) - job.finished_at < timedelta(seconds=2)
    assert workers.stop() == 0
