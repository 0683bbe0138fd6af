"""Measure what a job costs as the table grows: beside finished jobs by the million, and out of a million that wait.

For each size a database is filled once, and rounds of drains go through the sizes in turn. Printed for each: processor
time of the workers and of the server by job, WAL by job, dead rows by job (each is one to vacuum), and the rate beside that
of an empty table. Finished rows lie in the table of jobs, finished within the last day, as the default settings keep them.

Then the wait of urgent jobs above a million older ones of the lane below, beside that on an empty queue; and, while urgent
jobs never run out, how many of the older ones started in each second. Ends with 1 when a limit was passed.

The full form makes some 70 million rows: give it 30 GB of disk and an hour or two. `--finished 1000000 --waiting 200000
--rounds 2` takes minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, fields

from benchmarks.compared import lanes, process
from benchmarks.compared.ours import dead, finish, ready, trial, wait, wal
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial


@dataclass(frozen=True)
class Cost:
    rate: float
    worker: float  # seconds of processor time by job
    server: float
    wal: float  # bytes by job
    dead: float  # rows by job


FIGURES = [field.name for field in fields(Cost)]


@dataclass(frozen=True)
class Size:
    finished: int
    waiting: int = 0

    def __str__(self) -> str:
        return f"{self.finished:,} finished" + (f", {self.waiting:,} waiting" if self.waiting else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--finished", type=int, nargs="+", default=[1_000_000, 10_000_000, 30_000_000],
        help="finished rows, beside none (default: 1, 10 and 30 million)",
    )  # fmt: skip
    parser.add_argument("--waiting", type=int, default=1_000_000, help="waiting rows (default: a million)")
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs drained in each round (default: 40000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (default: 5)")
    parser.add_argument("--least", type=float, default=0.9, help="rate allowed beside the empty table (default: 0.9)")
    parser.add_argument("--urgent", type=int, default=300, help="urgent jobs whose wait is measured (default: 300)")
    parser.add_argument(
        "--batch", type=int, default=500, help="jobs in a claim, for the limit of the wait (default: 500)"
    )
    options = parser.parse_args()
    with Servers() as servers:
        print(f"{servers.versions()}, {options.jobs:,} jobs a round, {options.rounds} rounds", flush=True)
        slow = _costs(servers, options)
        late = lanes.measure(servers, options.waiting, options.urgent, options.batch)
    return int(slow or late)


def _costs(servers: Servers, options: argparse.Namespace) -> bool:
    most = max(options.finished)
    sizes = [Size(0), *map(Size, options.finished), Size(0, options.waiting), Size(most, options.waiting)]
    found: dict[Size, list[Cost]] = defaultdict(list)
    faults = 0
    for _ in range(options.rounds):
        for size in sizes:
            cost, bad = _cost(servers, size, options.jobs)
            found[size].append(cost)
            faults += bad
    print(
        f"\n{'rows':<36} {'jobs/s':>8} {'ratio':>6} {'worker µs':>10} {'server µs':>10} {'WAL bytes':>10} {'dead rows':>10}"
    )
    slow = False
    for size in sizes:
        middle = [statistics.median(getattr(cost, name) for cost in found[size]) for name in FIGURES]
        rate, worker, server, wal, dead = middle
        ratio = statistics.median(
            here.rate / empty.rate for here, empty in zip(found[size], found[Size(0)], strict=True)
        )
        slow |= ratio < options.least
        print(
            f"{size!s:<36} {rate:>8,.0f} {ratio:>6.2f} {worker * 1e6:>10.1f} {server * 1e6:>10.1f} {wal:>10,.0f} {dead:>10.2f}"
        )
    print(f"lost or doubled: {faults}", flush=True)
    return slow or bool(faults)


def _cost(servers: Servers, size: Size, jobs: int) -> tuple[Cost, int]:
    """Drain so many jobs of a database of that size; return what one cost, and how many were lost or ran twice."""
    total = max(3 * jobs // 2, size.waiting)  # more than are drained: no size is to be measured running dry
    keep = "" if size == Size(0) else f"growth_{size.finished}_{size.waiting}"
    with trial(servers, 2 * total, keep=keep) as here:
        if not here.found:
            finish(here, size.finished)
        wait(here, total - ready(here))
        here.settle()
        with here.worker(graceful=True) as worker:
            here.begun()
            before = _reading(here, worker.pid)
            here.wait(lambda: here.marks.executed() >= jobs, 600)
            after = _reading(here, worker.pid)
        count = here.count()
        lost = total - ready(here) - (count.jobs - count.lost)
        # The figures of a session come to be seen when it ends.
        return _difference(before, after, dead(here) / (count.jobs - count.lost)), lost + count.doubled


def _reading(here: Trial, pid: int) -> tuple[float, ...]:
    return here.marks.executed(), time.monotonic(), process.cpu(pid), here.server_cpu(), wal(here)


def _difference(before: tuple[float, ...], after: tuple[float, ...], dead_rows: float) -> Cost:
    jobs, seconds, worker, server, written = (then - now for now, then in zip(before, after, strict=True))
    return Cost(jobs / seconds, worker / jobs, server / jobs, written / jobs, dead_rows)


if __name__ == "__main__":
    sys.exit(main())
