"""Networks at their worst between a tree and its database: silence, loss, resets, and answers that never come."""

from __future__ import annotations

import os
import signal
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from django_jobs.models import Worker
from tests.app.jobs import leave_effect, nothing, wait_for_file
from tests.app.process_jobs import end_by_file
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import effects, ends, lines, session_pids, state, wait_for_effect, wait_seconds
from tests.processes.outages import away, back
from tests.proxy import COMMIT, Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgresql]
LEASE = {"LEASE": 3, "HEARTBEAT": 1, "SHUTDOWN_GRACE": 2}
LONGER_THAN_A_LEASE = 4.0
SOON = 10.0


class Flow:
    """A tree at work: two runs in flight that the test ends, and short jobs before, during and after the fault."""

    def __init__(self, network: Tree, directory: Path) -> None:
        self.network = network
        self._directory = directory
        self.workers = network.start("--processes", "2", "--threads", "4", settings=LEASE)
        self.long = [end_by_file.enqueue(f"long {number}", str(directory)) for number in range(2)]
        for number in range(2):
            wait_for_effect(network, f"long {number}:start")
        self.pids = self.workers.wait_until_ready(2)
        self.short = [nothing.enqueue(number) for number in range(20)]

    def enqueue(self, count: int) -> None:
        self.short += [nothing.enqueue(number) for number in range(count)]

    def flows_again(self) -> None:
        """What is enqueued now is done soon."""
        until = time.monotonic() + SOON
        last = [leave_effect.enqueue(f"fresh {number}") for number in range(5)]
        for job in last:
            self.network.wait_for_status(job, "done", timeout=until - time.monotonic())
        self.short += last

    def charged(self) -> list[Any]:
        """Return what jobs were charged with, attempts or losses."""
        return [state(job) for job in [*self.long, *self.short] if state(job)[1:3] != (0, 0)]

    def ends_well(self) -> None:
        """All were done once, uncharged, by the processes that were there before."""
        for job in self.short:
            self.network.wait_for_status(job, "done", timeout=SOON)
        assert {job.token for job in self.long if state(job)[0] == "running"} == {1}
        for number, job in enumerate(self.long):
            (self._directory / f"long {number}.1").write_text("return")
            self.network.wait_for_status(job, "done", timeout=SOON)
        assert {state(job) for job in self.long} == {("done", 0, 0, 1)}
        # A claim whose answer was lost was given back, and its number stays used.
        assert {(job.attempts, job.losses, len(job.history)) for job in self.short} == {(0, 0, 0)}
        expected = [(f"fresh {number}", 1) for number in range(5)]
        expected += [(f"long {number}:start", 1) for number in range(2)]
        assert effects(self.network) == sorted(expected)
        assert self.workers.worker_pids() == self.pids
        assert not lines(self.workers, "Lost lease")
        assert self.workers.stop() == 0


@pytest.fixture
def flow(network: Tree, tmp_path: Path) -> Flow:
    return Flow(network, tmp_path)


def said_once(workers: RunWorkers, processes: int = 3) -> None:
    """Each process has said at most once that the database is away, and as often that it is back."""
    wait_for(lambda: sorted(away(workers)) == sorted(back(workers)), 10.0, f"{away(workers)} {back(workers)}")
    assert len(away(workers)) <= processes


@pytest.mark.parametrize("fault", ["held", "lost", "refused"])
def test_after_a_network_that_was_away_for_longer_than_a_lease_the_same_processes_go_on(
    flow: Flow, proxy: Proxy, fault: str
) -> None:
    faults: dict[str, AbstractContextManager[None]] = {
        "held": proxy.silence(),
        "lost": proxy.silence(lossy=True),
        "refused": proxy.refusal(),
    }
    with faults[fault]:
        flow.enqueue(20)
        begun = time.monotonic()
        wait_for(lambda: "supervisor" in away(flow.workers), what="the supervisor notices")
        wait_seconds(begun + LONGER_THAN_A_LEASE - time.monotonic())
    flow.flows_again()
    said_once(flow.workers)
    flow.ends_well()
    assert flow.charged() == []


def test_a_silence_shorter_than_a_lease_is_only_a_delay(flow: Flow, proxy: Proxy) -> None:
    with proxy.silence():
        flow.enqueue(20)
        wait_seconds(0.7)
    flow.flows_again()
    flow.ends_well()
    assert not away(flow.workers)


def test_all_connections_cut_at_once_and_again_charge_nothing(flow: Flow, proxy: Proxy) -> None:
    for _ in range(5):
        flow.enqueue(20)
        proxy.cut()
        wait_for(lambda: not flow.network.count(status="ready"), SOON)
    flow.flows_again()
    flow.ends_well()
    assert flow.charged() == []


COMPLETE = b"'done' ELSE 'cancelled'"


def test_an_outcome_whose_answer_never_comes_is_decided_by_asking_the_row(
    network: Tree, proxy: Proxy, tmp_path: Path
) -> None:
    workers = network.start("--threads", "2", settings=LEASE)
    (pid,) = workers.wait_until_ready()
    with proxy.swallow(COMPLETE):
        job = leave_effect.enqueue("a")
        wait_for(lambda: proxy.swallowed)
        network.wait_for_status(job, "done")
        later = [leave_effect.enqueue(f"b {number}") for number in range(5)]
        for other in later:
            network.wait_for_status(other, "done", timeout=SOON)
    assert {state(job) for job in [job, *later]} == {("done", 0, 0, 1)}
    assert effects(network) == sorted([("a", 1), *[(f"b {number}", 1) for number in range(5)]])
    assert workers.worker_pids() == [pid]
    assert workers.stop() == 0
    for text in ("Lost lease", "goes on", "cannot be reached", "does not answer"):
        assert not lines(workers, text)


def supervised_at(network: Tree) -> datetime:
    row = Worker.objects.using(network.alias).order_by("-heartbeat_at").first()
    return row.heartbeat_at if row else datetime.min.replace(tzinfo=UTC)


def test_a_loss_whose_commit_is_not_answered_is_charged_once(network: Tree, proxy: Proxy, tmp_path: Path) -> None:
    job = end_by_file.enqueue("a", str(tmp_path))
    workers = network.start("--threads", "1", settings=LEASE)
    pid = wait_for_effect(network, "a:start")
    with proxy.swallow(COMMIT):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: proxy.swallowed, what="the commit of the rescue")
        wait_for_effect(network, "a:start", run=2)
        at = supervised_at(network)
        wait_for(lambda: supervised_at(network) > at, SOON, "heartbeats go on")
    assert (state(job), ends(job)) == (("running", 0, 1, 2), [(1, "died")])
    for text in ("goes on", "cannot be reached"):
        assert not lines(workers, text)
    # Of the supervisor, unless the new worker process was faster with its first: that one says so when it notices.
    broke = "the connection broke and is made anew: no answer came in time"
    wait_for(lambda: lines(workers, broke), SOON, "whose connection it was says that it broke")
    assert len(lines(workers, broke)) == 1
    (tmp_path / "a.2").touch()
    network.wait_for_status(job, "done")
    workers.stop()


def test_a_signal_in_a_silence_ends_all_within_the_grace_and_five_seconds(
    network: Tree, proxy: Proxy, tmp_path: Path
) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "go"))
    busy = network.start("--threads", "1", settings=LEASE)
    wait_for_effect(network, "a:start")
    idle = network.start(settings=LEASE)
    idle.wait_until_ready()
    with proxy.silence(lossy=True):
        wait_for(lambda: "supervisor" in away(busy) and "supervisor" in away(idle))
        begun = time.monotonic()
        for workers in (busy, idle):
            workers.signal(signal.SIGTERM)
        assert [workers.wait() for workers in (busy, idle)] == [4, 4]
        assert time.monotonic() - begun <= 2 + 5
        assert [session_pids(workers.pid) for workers in (busy, idle)] == [[], []]
    (tmp_path / "go").touch()
    last = network.start(settings=LEASE)
    network.wait_for_status(job, "done")
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert last.stop() == 0
