"""The database away, full, read-only, restarted or not to be found, under trees with running jobs."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_jobs.models import Job
from django_jobs.workers.maintenance import FIRST_WAIT
from example_project import postgres
from tests.app.jobs import leave_effect, nothing, wait_for_file
from tests.app.process_jobs import end_by_file
from tests.harness import Tree, wait_for
from tests.processes.common import effects, ends, lines, session_pids, state, wait_for_effect, wait_seconds
from tests.processes.outages import LEASE, away, back, down, full, read_only, terminate_all

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


def test_a_worker_that_is_too_busy_to_claim_notices_that_the_database_is_away(
    server: postgres.Server, trees: Tree, tmp_path: Path
) -> None:
    job = end_by_file.enqueue("a", str(tmp_path))
    workers = trees.start("--threads", "1", settings=OUTAGE_LEASE)
    wait_for_effect(trees, "a:start")
    with down(server, (workers, "worker")):
        pass
    (tmp_path / "a.1").write_text("return")
    trees.wait_for_status(job, "done")
    assert state(job) == ("done", 0, 0, 1)
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


SOON = 10.0
# Its heartbeats are seldom enough for a busy machine.
OUTAGE_LEASE = {"LEASE": 3, "HEARTBEAT": 1}


class Load:
    """Two trees and a stream of jobs, each of which writes once; the test enqueues on a connection of its own."""

    def __init__(self, trees: Tree, **options: Any) -> None:
        self.trees = trees
        self.both = [trees.start("--threads", "2", settings=OUTAGE_LEASE, **options) for _ in range(2)]
        self.pids = [workers.wait_until_ready() for workers in self.both]
        self.jobs: list[Job] = []

    def enqueue(self, count: int, delay: float = 0.0, spread: float = 0.0) -> None:
        first = len(self.jobs)
        self.jobs += [
            leave_effect.using(delay=delay + number * spread / count).enqueue(str(first + number))
            for number in range(count)
        ]

    def flows(self) -> None:
        job = nothing.enqueue()
        self.trees.wait_for_status(job, "done", timeout=SOON)
        assert state(job)[1] == 0

    def notices(self, *processes: str) -> None:
        """Wait until these processes of both trees have said that the database is away, and not yet that it is back."""

        def noticed() -> bool:
            return all(
                away(workers).count(process) == back(workers).count(process) + 1
                for workers in self.both
                for process in processes
            )

        wait_for(noticed, what=f"{processes} notice")

    def said_once(self, changes: int = 1) -> None:
        """Each process has said at most once a change that the database is away, and as often that it is back."""
        for workers in self.both:
            wait_for(lambda: sorted(away(workers)) == sorted(back(workers)), SOON)  # noqa: B023
            for process in ("supervisor", "worker"):
                assert away(workers).count(process) <= changes

    def charged(self) -> list[Any]:
        """Return the jobs that were charged an attempt; what an outage cost is a loss."""
        return [state(job) for job in self.trees.jobs(attempts__gt=0)]

    def ends_well(self) -> None:
        """Nothing was lost or charged; nothing had to be replaced."""
        wait_for(lambda: not self.trees.count(status__in=["ready", "running"]), 60.0, "all are done")
        assert self.trees.count(status="done") == self.trees.count()
        assert self.charged() == []
        assert {key for key, _ in effects(self.trees)} == {str(number) for number in range(len(self.jobs))}
        assert [workers.worker_pids() for workers in self.both] == self.pids
        for workers in self.both:
            assert not lines(workers, "it goes on")
        assert [workers.stop() for workers in self.both] == [0, 0]


@pytest.mark.parametrize("server", [{"max_connections": "18"}], indirect=True)
def test_with_no_connection_left_jobs_wait_uncharged(server: postgres.Server, trees: Tree) -> None:
    load = Load(trees)
    # What comes and goes by itself would leave a connection to others.
    maintains = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'django_jobs:maintenance')"
    wait_seconds(FIRST_WAIT + 0.5)
    with psycopg.connect(server.url, autocommit=True) as raw:
        wait_for(lambda: raw.execute(maintains).fetchone() == (False,), what="maintenance has had its first round")
    load.enqueue(20, delay=1)
    with full(server) as raw:
        started = "SELECT count(*) FROM django_jobs_job WHERE token > 0"
        load.notices("worker")
        ran_into_it = raw.execute(started).fetchone()
        wait_seconds(2 * OUTAGE_LEASE["LEASE"])
        # They wait for their outcome to be stored; no more are claimed.
        assert raw.execute(started).fetchone() == ran_into_it
    load.flows()
    load.said_once()
    load.ends_well()


def test_a_server_that_is_read_only_for_a_while_charges_nothing(server: postgres.Server, trees: Tree) -> None:
    load = Load(trees)
    for _ in range(3):
        load.enqueue(40, spread=1.0)
        with read_only(server):
            load.notices("supervisor")  # a worker that has nothing to write has nothing to notice
        load.flows()
    load.said_once(changes=3)
    load.ends_well()
    assert load.charged() == []


def test_sessions_that_are_ended_again_and_again_charge_nothing(server: postgres.Server, trees: Tree) -> None:
    load = Load(trees)
    for _ in range(10):
        load.enqueue(20)
        assert terminate_all(server) >= 4
        load.flows()
    load.ends_well()
    for workers in load.both:
        assert not away(workers)


def test_a_server_that_crashes_again_and_again_charges_nothing(server: postgres.Server, trees: Tree) -> None:
    load = Load(trees)
    for _ in range(3):
        load.enqueue(40)
        with down(server):
            load.notices("worker")
        load.flows()
    load.said_once(changes=3)
    load.ends_well()
    assert load.charged() == []


def test_a_name_that_cannot_be_resolved_for_a_while_charges_nothing(
    server: postgres.Server, trees: Tree, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    env = {"DJANGO_SETTINGS_MODULE": "tests.unresolvable", "DJANGO_JOBS_TEST_NO_DNS": str(missing)}
    load = Load(trees, env=env)
    load.enqueue(40)
    missing.touch()
    terminate_all(server)
    load.notices("supervisor", "worker")
    late = trees.start(settings=OUTAGE_LEASE, env=env)
    wait_for(lambda: lines(late, "cannot be reached, waiting: failed to resolve host"))
    load.enqueue(20)
    missing.unlink()
    late.wait_until_ready()
    load.flows()
    load.said_once()
    load.ends_well()
    assert load.charged() == []
