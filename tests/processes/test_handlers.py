"""Handlers that end as they must not: each fails by itself, and what runs beside and after it does not notice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from tests.app.jobs import leave_effect, misbehave, nothing
from tests.app.process_jobs import fork_and_return, leave_orphans, query_after, terminate_fork, use_up_descriptors
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
# How a handler misbehaves, and what its last error says of it.
WAYS = {
    "raise NUL": "ValueError: \N{REPLACEMENT CHARACTER}",
    "return object": "the result is a object",
    "return NaN": "the result is nan, which JSON has no word for",
    "leave transaction": "TransactionLeftOpen: The handler ended with a transaction open on the database 'default'",
    "exit": "SystemExit: 3",
    "return class": "The handler returned the class Retry; return Retry(...)",
    "raise unprintable": "Unprintable: <exception str() failed>",
    "raise endless": "Endless",
    "return huge": "the result is 2,000,002 bytes of JSON; MAX_RESULT_BYTES allows 1,048,576",
    "bad progress": "total must be over 0 and done from 0 to total",
    "bad retry": "Retry(delay) is -1",
    "autocommit off": "TransactionLeftOpen: The handler ended with a transaction open",
}
EACH = 25


def test_three_hundred_handlers_fail_each_by_itself_and_lose_nothing_of_those_between_and_after(tree: Tree) -> None:
    bad, good = [], []
    for number in range(EACH):
        for way in WAYS:
            bad.append(misbehave.enqueue(way))
            good.append(leave_effect.enqueue(f"{way} {number}"))
    workers = tree.start("--burst", "--threads", "2")
    assert workers.wait(60) == 0, workers.log
    for job in bad:
        job.refresh()
        assert (job.status, job.attempts, job.losses, job.token) == ("dead", 1, 0, 1), job.args
        assert WAYS[job.args[0]] in job.last_error
        assert ends(job) == [(1, "raised")]
    assert {state(job) for job in good} == {("done", 0, 0, 1)}
    # Of those that left a transaction open, the writes in it are gone; of the jobs after them on that thread, none.
    assert effects(tree) == sorted((job.args[0], 1) for job in good)
    assert not lines(workers, "it goes on")
    assert not lines(workers, " died: ")


def test_what_a_handler_forks_can_be_terminated_and_tells_no_outcome(tree: Tree) -> None:
    jobs = [terminate_fork.enqueue(), fork_and_return.enqueue("forked")]
    workers = tree.start("--threads", "1")
    for job in jobs:
        tree.wait_for_status(job, "done")
        assert state(job) == ("done", 0, 0, 1)
    assert jobs[0].result == -15
    copy = wait_for_effect(tree, "forked")
    wait_for(lambda: not lives(copy), what="the copy of the thread ends")
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0


def test_orphans_of_subprocesses_are_waited_for(tree: Tree) -> None:
    workers = tree.start()
    tree.wait_for_status(leave_orphans.enqueue(20), "done")
    (worker,) = workers.worker_pids()
    wait_for(lambda: len(workers.tree_pids()) == 3 and worker in workers.tree_pids(), 3.0, "no zombie is left")
    assert workers.stop() == 0


@on_postgresql
@pytest.mark.parametrize("left", [0, 1])
def test_a_process_without_a_file_descriptor_is_replaced_and_no_job_is_charged(tree: Tree, left: int) -> None:
    workers = tree.start("--threads", "1", settings=LEASE_2)
    pids = workers.wait_until_ready()
    job = use_up_descriptors.enqueue("a", left)
    tree.wait_for_status(job, "done")
    assert state(job) == ("done", 0, 0, 2)
    assert lines(workers, f"Worker process {pids[0]} cannot go on and ends")
    assert workers.worker_pids() != pids
    assert workers.stop() == 0


@on_postgresql
def test_with_all_connections_cut_a_run_is_lost_uncounted_and_all_others_go_on(tree: Tree, tmp_path: Path) -> None:
    job = query_after.enqueue("a", str(tmp_path / "go"))
    workers = tree.start("--threads", "2")
    wait_for_effect(tree, "a:start")
    pids = workers.worker_pids()
    with connections[tree.alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'django_jobs:%%'"
        )
        assert cursor.fetchone()[0] >= 3
    (tmp_path / "go").touch()
    due = job.run_at
    tree.wait_for_status(job, "ready")
    assert (state(job), ends(job)) == (("ready", 0, 1, 1), [(1, "connection broke")])
    assert timedelta(seconds=5) <= job.run_at - due <= timedelta(seconds=10)
    tree.wait_for_status(nothing.enqueue(), "done")
    tree.wait_for_status(leave_effect.enqueue("b"), "done")
    assert workers.worker_pids() == pids
    assert workers.stop() == 0
