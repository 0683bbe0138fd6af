"""Idle workers that are woken by NOTIFY: here a poll comes so late that nothing is done in time without it."""

from __future__ import annotations

from tests.app.jobs import leave_effect
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import lines, on_postgresql, with_processes

pytestmark = [*with_processes, on_postgresql]
# Longer than any test waits for a job.
SELDOM = {"POLL_INTERVAL": 60, "LEASE": 30, "HEARTBEAT": 10}


def listening(tree: Tree, *options: str, **settings: object) -> RunWorkers:
    """Start workers, and wait until they are idle and listen."""
    workers = tree.start("--no-scheduler", *options, settings={**SELDOM, **settings})
    workers.wait_until_ready()
    wait_for(lambda: lines(workers, "woken by NOTIFY when"), what="it listens")
    return workers


def test_an_idle_worker_starts_a_job_when_its_transaction_commits(tree: Tree) -> None:
    workers = listening(tree)
    for number in range(5):
        tree.wait_for_status(leave_effect.enqueue(str(number)), "done", timeout=15.0)
    assert workers.stop() == 0
