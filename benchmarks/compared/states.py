"""Measurements of all peers at once, since each mostly waits: the cost of an idle worker, the return of a killed one's job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from benchmarks.compared import process
from benchmarks.compared.bench import Bench, Figure
from benchmarks.compared.peer import Peer
from benchmarks.idle import STATEMENT

IDLE = 30.0
CALM = 5.0
KILLED_WITHIN = 330.0  # oban's 300 s are the longest that any of them documents


def idle(bench: Bench, peers: list[Peer]) -> Iterator[tuple[Peer, Figure]]:
    """Memory of the whole tree, statements as the server's log counts them, and processor time in 30 s.

    Each has run one job before, so that all is loaded and connected.
    """
    with contextlib.ExitStack() as ends:
        idlers = []
        for peer in peers:
            trial = ends.enter_context(bench.trial(peer, 1))
            if peer.broker == "postgresql":
                trial.connection.execute(f"ALTER DATABASE {trial.database} SET log_statement = 'all'".encode())
            worker = ends.enter_context(trial.worker())
            trial.verb("bulk", jobs=1)
            trial.begun()
            idlers.append((trial, worker))
        time.sleep(CALM)
        log = bench.servers.postgres.server.log
        start = log.stat().st_size
        before = [process.cpu(worker.pid) for _, worker in idlers]
        time.sleep(IDLE)
        used = [process.cpu(worker.pid) - cpu for (_, worker), cpu in zip(idlers, before, strict=True)]
        lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
        for (trial, worker), cpu in zip(idlers, used, strict=True):
            yield trial.peer, Figure("idle memory", process.memory(worker.pid), "MiB")
            yield trial.peer, Figure("idle CPU", cpu, "s in 30 s")
            if trial.peer.broker == "postgresql":
                sent = sum(line.startswith(f"{trial.database} ") and bool(STATEMENT.search(line)) for line in lines)
                yield trial.peer, Figure("idle statements", sent / IDLE, "/s")


def kill(bench: Bench, peers: list[Peer]) -> Iterator[tuple[Peer, Figure]]:
    """Kill a worker's whole tree in the middle of a job, start another at once, and wait until the job runs again."""
    with contextlib.ExitStack() as ends:
        killed = {}
        for peer in peers:
            trial = ends.enter_context(bench.trial(peer, 1, "hang"))
            trial.verb("bulk", jobs=1)
            with trial.worker() as worker:
                trial.begun()
                process.kill(worker.pid)
                killed[peer.name] = (peer, trial, time.monotonic())
            ends.enter_context(trial.worker())
        until = time.monotonic() + KILLED_WITHIN
        while killed and time.monotonic() < until:
            for name, (peer, trial, at) in list(killed.items()):
                if trial.marks.last_start() > at:
                    del killed[name]
                    yield peer, Figure("kill -9", trial.marks.last_start() - at, "s")
            time.sleep(0.1)
    for peer, _, _ in killed.values():
        yield peer, Figure("kill -9", float("inf"), "s")
