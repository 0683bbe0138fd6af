"""Measure schedules, in three parts.

resolver: how many slots a second are found, beside croniter and cronsim. Each library is asked for the next fires of the
same expressions, one after the other, from a moment in a zone with clock changes. What is compared is speed: which fires
are right is told by tests/cron. The rounds of the libraries take turns, and the median round counts.

tick: what one look at the schedules costs when 10 of them are due, with 10, 1,000 and 100,000 in the table, in turns; and
until when 1,000 that are due in the same second are all queued.

latency: how late the job of a slot is in the table, by the database's clock, with one `runscheduler` and a schedule each
second: median and 95th percentile.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice

import django
from croniter import croniter
from cronsim import CronSim

from benchmarks.throughput import ROOT
from django_jobs.cron import Cron
from django_jobs.slots import CronSlots
from django_jobs.zones import zone
from example_project.postgres import temporary

PARTS = ["resolver", "tick", "latency"]
SIZES = (10, 1_000, 100_000)
DUE = 10
TYPE = "benchmarks.jobs.nothing"
EXPRESSIONS = ("* * * * *", "*/5 8-18 * * 1-5", "0 * * * *", "30 2 * * *", "0 9 * * 1", "0 0 29 2 *")
BERLIN = zone("Europe/Berlin")
START = datetime(2026, 1, 1, tzinfo=BERLIN)

Fires = Callable[[str], Iterator[object]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each library (default: 9)")
    parser.add_argument("--slots", type=int, default=500, help="slots of a round (default: 500)")
    parser.add_argument(
        "--fires", type=int, default=100, help="slots whose latency is measured, one a second (default: 100)"
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of {', '.join(PARTS)} (default: all)")
    options = parser.parse_args()
    parts = options.parts or PARTS
    if unknown := set(parts).difference(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: give some of {', '.join(PARTS)}")
    if "resolver" in parts:
        resolver_rates(options.rounds, options.slots)
    if {"tick", "latency"}.isdisjoint(parts):
        return 0
    with temporary() as server:
        os.environ |= {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        django.setup()
        logging.getLogger("django_jobs").setLevel(logging.ERROR)  # all that is due here was missed
        if "tick" in parts:
            tick_costs(options.rounds)
            thousand_at_once()
        if "latency" in parts:
            latencies(options.fires)
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


def tick_costs(rounds: int) -> None:
    """Print what a tick costs with 10 due schedules among so many; that others are there must make no difference."""
    from django.db import connection

    taken: dict[int, list[float]] = {}
    stored = 0
    for size in SIZES:
        store(size - stored, stored)
        stored = size
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE django_jobs_schedule, django_jobs_schedulestate, django_jobs_job")
        tick_all()  # the first look at each plans it
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE django_jobs_schedule, django_jobs_schedulestate, django_jobs_job")
        taken[size] = [ticked(size) for _ in range(rounds)]
    print(f"\n{'schedules':>10}{'ms a tick of 10 due':>22}")
    for size, seconds in taken.items():
        print(f"{size:>10,}{statistics.median(seconds) * 1000:>22.1f}")


def store(count: int, first: int) -> None:
    from django_jobs.models import Schedule

    payload = {"args": [1], "kwargs": {}}
    Schedule.objects.bulk_create(
        [
            Schedule(name=f"s{first + n}", type=TYPE, payload=payload, expression="0 0 1 1 *", timezone="Europe/Berlin")
            for n in range(count)
        ],
        batch_size=1000,
    )


def tick_all() -> int:
    from django_jobs import registry
    from django_jobs.engines import engine
    from django_jobs.schedules.tick import tick

    total = 0
    while (found := tick(engine(), registry.names(), "benchmark")).taken:
        total += found.fired
    return total


def ticked(size: int) -> float:
    """Make 10 schedules, spread over all, due since now, and return the seconds that the tick takes which makes their jobs."""
    make_due(max(size // DUE, 1), DUE)
    started = time.perf_counter()
    fired = tick_all()
    ended = time.perf_counter()
    if fired != DUE:
        raise SystemExit(f"{fired} jobs were made instead of {DUE}.")
    return ended - started


def make_due(step: int, count: int) -> None:
    """Let the last slot of some be long ago, so that another has come."""
    from django_jobs.models import Job, ScheduleState
    from django_jobs.models.clock import Clock

    ids = list(ScheduleState.objects.order_by("pk").values_list("pk", flat=True)[::step][:count])
    long_ago = datetime.fromisoformat("2025-06-01T00:00:00+00:00")
    ScheduleState.objects.filter(pk__in=ids).update(
        wake_at=Clock(), changed_at=long_ago, last_slot=None, last_reading="", next_run_at=long_ago
    )
    Job.objects.all().delete()


def thousand_at_once() -> None:
    """Print how long it takes until a thousand schedules that are due at once are all queued."""
    make_due(100, 1000)
    started = time.perf_counter()
    fired = tick_all()
    print(f"{fired:,} due at once are queued in {time.perf_counter() - started:.2f} s")


def latencies(fires: int) -> None:
    from django_jobs.models import Job, Schedule

    Job.objects.all().delete()
    Schedule.objects.all().delete()
    Schedule(name="each second", type=TYPE, payload={"args": [1], "kwargs": {}}, every=timedelta(seconds=1)).save()
    scheduler = subprocess.Popen([sys.executable, "-m", "django", "runscheduler", "--verbosity", "0"], cwd=ROOT)
    try:
        while Job.objects.count() < fires + 1:
            time.sleep(0.5)
    finally:
        scheduler.terminate()
        scheduler.wait(30)
    times = Job.objects.order_by("slot").values_list("slot", "created_at")[1:]  # its scheduler had just started
    late = sorted((at - slot).total_seconds() * 1000 for slot, at in times)
    median, high = statistics.median(late), late[int(len(late) * 0.95)]
    print(
        f"\n{len(late)} slots, one a second: their jobs are there {median:.0f} ms late at the median, {high:.0f} ms at p95"
    )


if __name__ == "__main__":
    sys.exit(main())
