"""Measure schedules: how many slots a second the resolver finds, beside croniter and cronsim.

Each library is asked for the next fires of the same expressions, one after the other, from a moment in a zone with
clock changes. What is compared is speed: which fires are right is told by tests/cron. The rounds of the libraries take
turns, and the median round counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from croniter import croniter
from cronsim import CronSim

from django_jobs.cron import Cron
from django_jobs.slots import CronSlots
from django_jobs.zones import zone

EXPRESSIONS = ("* * * * *", "*/5 8-18 * * 1-5", "0 * * * *", "30 2 * * *", "0 9 * * 1", "0 0 29 2 *")
BERLIN = zone("Europe/Berlin")
START = datetime(2026, 1, 1, tzinfo=BERLIN)

Fires = Callable[[str], Iterator[object]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each library (default: 9)")
    parser.add_argument("--slots", type=int, default=500, help="slots of a round (default: 500)")
    options = parser.parse_args()
    resolver_rates(options.rounds, options.slots)
    return 0


def resolver_rates(rounds: int, slots: int) -> None:
    """Print the slots a second that each library finds, by expression."""
    libraries: dict[str, Fires] = {"django_jobs": ours, "croniter": of_croniter, "cronsim": of_cronsim}
    print(f"{'slots a second':<20}" + "".join(f"{name:>14}" for name in libraries))
    for text in EXPRESSIONS:
        # The 29th of February comes 25 times a century, and croniter looks ahead a few decades only.
        count = min(slots, 50) if " 29 2 " in text else slots
        taken: dict[str, list[float]] = {name: [] for name in libraries}
        for _ in range(rounds):
            for name, fires in libraries.items():
                taken[name].append(seconds(fires, text, count))
        rates = (count / statistics.median(taken[name]) for name in libraries)
        print(f"{text:<20}" + "".join(f"{rate:>14,.0f}" for rate in rates))


def seconds(fires: Fires, text: str, count: int) -> float:
    """Return how long a library takes for its next fires, reading the expression left away."""
    found = fires(text)
    started = time.perf_counter()
    number = sum(1 for _ in islice(found, count))
    ended = time.perf_counter()
    if number != count:
        raise SystemExit(f"{text} has {number} fires instead of {count}.")
    return ended - started


def ours(text: str) -> Iterator[object]:
    return CronSlots(Cron.parse(text), BERLIN).after(START)


def of_croniter(text: str) -> Iterator[object]:
    found = croniter(text, START)
    return iter(lambda: found.get_next(datetime), None)


def of_cronsim(text: str) -> Iterator[object]:
    return iter(CronSim(text, START))


if __name__ == "__main__":
    sys.exit(main())
