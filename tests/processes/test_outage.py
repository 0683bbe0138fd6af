"""The database away for longer than a lease, under two trees with running jobs."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from example_project import postgres
from tests.app.jobs import leave_effect, wait_for_file
from tests.app.process_jobs import end_by_file
from tests.harness import Tree, wait_for
from tests.processes.common import ends, lines, session_pids, state, wait_for_effect, wait_seconds
from tests.processes.outages import LEASE, away, back, down

pytestmark = [pytest.mark.process, pytest.mark.postgresql]


def test_after_an_outage_longer_than_a_lease_nobody_is_reaped_and_work_goes_on(
    server: postgres.Server, trees: Tree, tmp_path: Path
) -> None:
    jobs, both = [], []
    for queue in ("first", "second"):
        jobs.append(end_by_file.using(queue=queue).enqueue(queue, str(tmp_path)))
        both.append(trees.start("--threads", "2", "--queues", f"{queue},default", settings=LEASE))
    for job in jobs:
        wait_for_effect(trees, f"{job.queue}:start")
    pids = [workers.wait_until_ready() for workers in both]
    wait_seconds(2.0)  # now both may take back others' jobs
    noticing = [(workers, process) for workers in both for process in ("supervisor", "worker")]
    with down(server, *noticing, seconds=3.5):
        assert [back(workers) for workers in both] == [[], []]
    fresh = [leave_effect.enqueue(str(number)) for number in range(10)]
    for job in fresh:
        trees.wait_for_status(job, "done", timeout=10.0)
    for workers, process in noticing:
        wait_for(lambda: process in back(workers), 10.0)  # noqa: B023
    wait_seconds(2.5)  # longer than it takes to become fit and to sweep
    for job in jobs:
        assert (state(job), ends(job)) == (("running", 0, 0, 1), [])
        (tmp_path / f"{job.queue}.1").write_text("return")
    for job in jobs:
        trees.wait_for_status(job, "done")
        assert (state(job), ends(job)) == (("done", 0, 0, 1), [])
    for workers, before in zip(both, pids, strict=True):
        assert workers.worker_pids() == before
        assert sorted(away(workers)) == sorted(back(workers)) == ["supervisor", "worker"]
        assert not lines(workers, "has not extended leases")
        assert workers.stop() == 0


def test_a_signal_while_the_database_is_away_ends_all_within_the_grace_and_five_seconds(
    server: postgres.Server, trees: Tree, tmp_path: Path
) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "go"))
    busy = trees.start("--threads", "1", settings=LEASE)
    wait_for_effect(trees, "a:start")
    idle = trees.start(settings=LEASE)
    idle.wait_until_ready()
    both = (busy, idle)
    with down(server, (busy, "supervisor"), (idle, "supervisor"), (idle, "worker")):
        starting = trees.start(settings=LEASE)
        wait_for(lambda: lines(starting, "cannot be reached"))
        begun = time.monotonic()
        for workers in (*both, starting):
            workers.signal(signal.SIGTERM)
        assert [workers.wait() for workers in (*both, starting)] == [4, 4, 4]
        assert time.monotonic() - begun <= 1 + 5
        assert [session_pids(workers.pid) for workers in both] == [[], []]
    (tmp_path / "go").touch()
    last = trees.start(settings=LEASE)
    trees.wait_for_status(job, "done")
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert last.stop() == 0
