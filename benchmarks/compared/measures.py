"""The measurements. Each is of one peer in one round, and yields figures by name; sizes follow the peer's expected rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compared.marks import Count
from benchmarks.compared.peer import Peer
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial

WARM = 20


@dataclass(frozen=True)
class Figure:
    name: str
    value: float | None
    unit: str
    count: Count | None = None
    note: str = ""


@dataclass
class Bench:
    servers: Servers
    pythons: dict[str, Path]
    short: bool
    seconds: float  # what a drain should last

    def trial(self, peer: Peer, jobs: int, handler: str = "nothing") -> Trial:
        return Trial(peer, self.pythons[peer.name], self.servers, jobs, handler=handler)

    def jobs(self, peer: Peer, most: float = float("inf"), seconds: float | None = None) -> int:
        return max(200, int(min(peer.rate, most) * (seconds or self.seconds)))


Measure = Callable[[Bench, Peer], Iterator[Figure]]


def enqueue(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """One by one, each in a transaction of its own, by one process on one connection."""
    jobs = 1_000 if bench.short else 3_000
    with bench.trial(peer, jobs + WARM) as trial:
        trial.settle()
        yield Figure("enqueue", jobs / trial.verb("enqueue", jobs=jobs, warm=WARM), "jobs/s")


def bulk(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """As many at once as the peer takes, by one process."""
    jobs = bench.jobs(peer, seconds=2 * bench.seconds)
    with bench.trial(peer, jobs + WARM) as trial:
        trial.settle()
        yield Figure("bulk", jobs / trial.verb("bulk", jobs=jobs, warm=WARM), "jobs/s")


def drain(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """From the first run until no job waits or runs, with jobs that do nothing."""
    for processes in (1, 2) if bench.short else (1, 2, 4):
        with bench.trial(peer, bench.jobs(peer, seconds=bench.seconds * min(processes, 2))) as trial:
            trial.fill()
            yield drained(trial, f"drain {processes}", processes)


def latency(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """From just before the enqueue until the handler starts, with an idle worker."""
    jobs = 100 if bench.short else 300
    with bench.trial(peer, jobs + WARM, "timed") as trial, trial.worker():
        trial.verb("trickle", jobs=trial.jobs, every=0.03)
        trial.wait(lambda: trial.marks.executed() >= trial.jobs, 30)
        waits = sorted(1_000 * wait for wait in trial.marks.waits()[WARM:])
        count = trial.count()
        if waits:
            yield Figure("latency p50", statistics.median(waits), "ms", count)
            yield Figure("latency p99", waits[int(0.99 * (len(waits) - 1))], "ms", count)


def drained(trial: Trial, name: str, processes: int = 1, threads: int = 4) -> Figure:
    with trial.worker(processes, threads):
        seconds = trial.drained(patience=60 + 10 * trial.jobs / trial.peer.rate)
    return Figure(name, trial.jobs / seconds, "jobs/s", trial.count())


MEASURES: dict[str, Measure] = {each.__name__: each for each in (enqueue, bulk, drain, latency)}
