"""Measure what an old snapshot costs: a transaction that began before everything else stays open, as of a report or a dump.

Then nothing that dies can be vacuumed, and whoever walks an index from its start reads all that died. In each round, once
with and once without it: 100,000 jobs are drained, then the rate of a further drain is taken, and then the wait of jobs that
come at a steady 500 a second. Ends with 1 when a limit was passed, or jobs were lost or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from benchmarks.compared.ours import trial
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial


@dataclass(frozen=True)
class Found:
    rate: float
    p50: float  # seconds
    p95: float
    steady: float  # jobs/s that started of those that came at a steady rate
    faults: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=int, default=100_000, help="jobs drained within it before (default: 100000)")
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs of the measured drain (default: 40000)")
    parser.add_argument("--rate", type=float, default=500, help="steady jobs a second (default: 500)")
    parser.add_argument("--seconds", type=float, default=20, help="how long they come (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: 3)")
    parser.add_argument("--least", type=float, default=0.8, help="rate allowed beside that without (default: 0.8)")
    parser.add_argument(
        "--latest", type=float, default=1.0, help="95th percentile of the wait allowed, seconds (default: 1)"
    )
    options = parser.parse_args()
    without: list[Found] = []
    within: list[Found] = []
    with Servers() as servers:
        print(f"{servers.versions()}, {options.rounds} rounds", flush=True)
        for number in range(options.rounds):
            without.append(_round(servers, options, number, held=False))
            within.append(_round(servers, options, number, held=True))
    return _report(without, within, options)


def _report(without: list[Found], within: list[Found], options: argparse.Namespace) -> int:
    print(
        f"{'snapshot':<8} {'drain, jobs/s':>22} {'steady':>13} {'wait p50, ms':>13} {'p95, ms':>8} {'lost, doubled':>14}"
    )
    for name, found in (("none", without), ("held", within)):
        rates = [each.rate for each in found]
        rate = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
        came, p50, p95 = (statistics.median(getattr(each, kind) for each in found) for kind in ("steady", "p50", "p95"))
        faults = sum(each.faults for each in found)
        print(f"{name:<8} {rate:>22} {came:>13,.0f} {p50 * 1e3:>13.1f} {p95 * 1e3:>8.1f} {faults:>14}")
    ratio = statistics.median(held.rate / free.rate for held, free in zip(within, without, strict=True))
    steady = statistics.median(held.steady / free.steady for held, free in zip(within, without, strict=True))
    late = statistics.median(each.p95 for each in within)
    print(
        f"ratio of the drains {ratio:.2f}, of the steady rates {steady:.2f} (at least {options.least:g}); "
        f"p95 held {late:.3f} s (at most {options.latest:g})"
    )
    faults = sum(each.faults for each in without + within)
    return int(min(ratio, steady) < options.least or late > options.latest or faults > 0)


def _round(servers: Servers, options: argparse.Namespace, number: int, *, held: bool) -> Found:
    """All in one database: what is drained within the snapshot first, a measured drain, and jobs at a steady rate."""
    keep = f"{'held' if held else 'free'}_{number}"
    with trial(servers, options.before, keep=keep) as before:
        before.settle()
        with _snapshot(before.url) if held else contextlib.nullcontext():
            _drain(before)
            with trial(servers, options.jobs, keep=keep) as measured:
                rate = _drain(measured)
                counts = [before.count(), measured.count()]
            with trial(servers, int(options.rate * options.seconds), "timed", keep=keep) as steady:
                waits, came = _steady(steady, 1 / options.rate)
                counts.append(steady.count())
    faults = sum(count.lost + count.doubled for count in counts)
    return Found(rate, statistics.median(waits), waits[int(0.95 * (len(waits) - 1))], came, faults)


def _drain(here: Trial) -> float:
    here.verb("bulk", jobs=here.jobs)
    with here.worker(graceful=True):
        return here.jobs / here.drained()


def _steady(here: Trial, every: float) -> tuple[list[float], float]:
    """Return the waits in order of length, and the rate at which jobs started."""
    with here.worker(graceful=True):
        here.verb("trickle", jobs=here.jobs, every=every)
        here.wait(lambda: here.marks.executed() >= here.jobs, 60)
    return sorted(here.marks.waits()), here.marks.kept_up()


@contextlib.contextmanager
def _snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM pg_class")
        yield
        holder.rollback()


if __name__ == "__main__":
    sys.exit(main())
