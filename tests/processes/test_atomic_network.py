"""An atomic run whose COMMIT is not answered, or never arrives: only the row can tell, and it is asked with a lock."""

from __future__ import annotations

import os
import signal

import pytest

from tests.app.atomic_jobs import write_and
from tests.harness import Tree, wait_for
from tests.processes.common import effects, ends, lines, run_beside_others, state
from tests.processes.outages import LEASE
from tests.proxy import COMMIT, Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgresql]
# Only an atomic run says this on its connection.
MARKED = b"set_config('idle_in_transaction_session_timeout'"


def test_an_atomic_run_whose_commit_was_made_and_not_answered_is_done(network: Tree, proxy: Proxy) -> None:
    workers = network.start(settings=LEASE)
    workers.wait_until_ready()
    with proxy.swallow(COMMIT, after=MARKED):
        job = write_and.enqueue("a", "follow up")
        wait_for(lambda: proxy.swallowed)
        wait_for(lambda: lines(workers, "its COMMIT was made, though no answer came"))
    network.wait_for_status(job, "done")
    assert (state(job), ends(job), effects(network, key="a")) == (("done", 0, 0, 1), [], [("a", 1)])
    wait_for(lambda: effects(network, key="follow up"))
    assert network.count() == 2
    assert not lines(workers, "its outcome is refused")
    assert workers.stop() == 0


def test_an_atomic_run_whose_commit_never_arrived_runs_again(network: Tree, proxy: Proxy) -> None:
    workers = network.start(settings=LEASE)
    workers.wait_until_ready()
    with proxy.swallow(COMMIT, after=MARKED, withhold=True):
        job = write_and.enqueue("a", "return")
        wait_for(lambda: proxy.swallowed)
        network.wait_for_status(job, "ready")
        assert effects(network) == []
    network.wait_for_status(job, "done")
    assert (state(job)[3], ends(job), effects(network)) == (2, [(1, "connection broke")], [("a", 2)])
    assert workers.stop() == 0


def test_an_atomic_run_whose_deferred_constraints_get_no_answer_is_given_up_at_its_deadline(
    network: Tree, proxy: Proxy
) -> None:
    workers = network.start(settings=LEASE)
    pids = workers.wait_until_ready()
    with proxy.swallow(b"SET CONSTRAINTS", after=MARKED):
        job = write_and.using(timeout=2).enqueue("a", "return")
        wait_for(lambda: proxy.swallowed)
        network.wait_for_status(job, "ready")
        assert effects(network) == []
    network.wait_for_status(job, "done")
    assert (ends(job), effects(network)) == ([(1, "connection broke")], [("a", 2)])
    assert workers.worker_pids() == pids
    assert workers.stop() == 0


@pytest.mark.parametrize(("withhold", "runs"), [(True, 2), (False, 1)], ids=["before", "after"])
def test_a_process_that_is_killed_at_its_commit_leaves_one_effect(
    network: Tree, proxy: Proxy, withhold: bool, runs: int
) -> None:
    workers = network.start(settings={"LEASE": 15, "HEARTBEAT": 1})
    (pid,) = workers.wait_until_ready()
    with proxy.swallow(COMMIT, after=MARKED, withhold=withhold):
        job = write_and.enqueue("a", "follow up")
        wait_for(lambda: proxy.swallowed)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: lines(workers, f"Worker process {pid} died"))
    run_beside_others(network)
    network.wait_for_status(job, "done")
    wait_for(lambda: effects(network, key="follow up"))
    assert (state(job)[3], effects(network, key="a")) == (runs, [("a", runs)])
    assert network.count() == 2
    assert workers.stop() == 0
