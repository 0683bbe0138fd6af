"""Measurements of one peer at a time: how many jobs a second, and how soon."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import psycopg

from benchmarks.compared import process
from benchmarks.compared.bench import WARM, Bench, Figure
from benchmarks.compared.peer import Peer
from benchmarks.compared.trial import Trial

SLEEPS = 1 / 0.005  # what one thread can do of handlers that sleep so long
SPINS = 1 / 0.001
MIB = 2**20


def enqueue(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """One by one, each in a transaction of its own, by one process on one connection."""
    jobs = 1_000 if bench.short else 3_000
    with bench.trial(peer, jobs + WARM) as trial:
        trial.settle()
        yield Figure("enqueue", jobs / trial.verb("enqueue", jobs=jobs, warm=WARM), "jobs/s")


def bulk(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """As many at once as the peer advises, by one process."""
    jobs = bench.jobs(peer, times=2)
    with bench.trial(peer, jobs + WARM) as trial:
        trial.settle()
        yield Figure("bulk", jobs / trial.verb("bulk", jobs=jobs, warm=WARM), "jobs/s")


def drain(processes: int, bench: Bench, peer: Peer) -> Iterator[Figure]:
    """From the first run until no job waits or runs, of jobs that do nothing; and what processor time a job took."""
    with bench.trial(peer, bench.jobs(peer, times=min(processes, 2))) as trial:
        trial.fill()
        with trial.worker(processes) as worker:
            trial.begun()
            ours, servers, left = process.cpu(worker.pid), trial.server_cpu(), trial.jobs - trial.marks.executed()
            seconds = trial.drained()
            ours, servers = process.cpu(worker.pid) - ours, trial.server_cpu() - servers
        yield Figure(f"drain {processes}", trial.jobs / seconds, "jobs/s", trial.count())
        if processes == 1 and left:
            yield Figure("worker CPU", 1e6 * ours / left, "µs/job")
            yield Figure("server CPU", 1e6 * servers / left, "µs/job")


def latency(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """From just before the enqueue until the handler starts, of an idle worker."""
    jobs = 100 if bench.short else 300
    with bench.trial(peer, jobs + WARM, "timed") as trial, trial.worker():
        trial.verb("trickle", jobs=trial.jobs, every=0.12)
        trial.wait(lambda: trial.marks.executed() >= trial.jobs, 30)
        waits = sorted(1_000 * wait for wait in trial.marks.waits()[WARM:])
        count = trial.count()
    if waits:
        yield Figure("latency p50", statistics.median(waits), "ms", count)
        yield Figure("latency p99", waits[int(0.99 * (len(waits) - 1))], "ms", count)


def waiting(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """Handlers that sleep 5 ms, 32 at once: 6,400 jobs/s are possible."""
    with bench.trial(peer, bench.jobs(peer, 32 * SLEEPS), "sleep") as trial:
        trial.fill()
        yield _drained(trial, "sleep 5 ms, 32 threads", threads=32)


def computing(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """Handlers that use the processor for 1 ms: 1,000 jobs/s are possible."""
    with bench.trial(peer, bench.jobs(peer, SPINS), "spin") as trial:
        trial.fill()
        yield _drained(trial, "compute 1 ms")


def payload(size: int, bench: Bench, peer: Peer) -> Iterator[Figure]:
    most = (32 if bench.short else 128) * MIB // size
    with bench.trial(peer, min(most, bench.jobs(peer))) as trial:
        trial.fill(size)
        yield _drained(trial, f"payload {size:,} B")


def snapshot(bench: Bench, peer: Peer) -> Iterator[Figure]:
    """A drain of up to 100,000 jobs, while a transaction that began before it stays open and idle."""
    if peer.broker != "postgresql":
        return
    with bench.trial(peer, min(100_000, bench.jobs(peer, times=4))) as trial:
        trial.fill()
        with psycopg.connect(trial.url) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT count(*) FROM pg_class")
            yield _drained(trial, "held snapshot")
            holder.rollback()


def finished(rows: int, bench: Bench, peer: Peer) -> Iterator[Figure]:
    """A drain beside so many finished jobs, which are made once and kept for the later rounds."""
    if not peer.finished:
        return
    with bench.trial(peer, bench.jobs(peer), keep=f"finished_{rows}") as trial:
        if not trial.found:
            for _ in range(rows // 1_000_000):
                trial.connection.execute(peer.finished.encode(), {"rows": 1_000_000})
        trial.fill()
        yield _drained(trial, f"{rows // 1_000_000} M finished")


def _drained(trial: Trial, name: str, threads: int = 4) -> Figure:
    with trial.worker(1, threads):
        seconds = trial.drained()
    return Figure(name, trial.jobs / seconds, "jobs/s", trial.count())
