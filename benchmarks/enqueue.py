"""Measure how fast jobs are enqueued, beside what Django and psycopg insert of the same rows without any check.

Each way stores the jobs in one transaction, in a process of its own, rounds are interleaved, and medians are printed.
The memory is by how much the process's peak grew, with calls or rows made by a generator where the way takes one.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from example_project.postgres import temporary

ROOT = Path(__file__).parent.parent
TYPE = "benchmarks.jobs.nothing"
PART = 10  # the slow ways store so much less


def enqueue_many(number: int) -> int:
    from benchmarks.jobs import nothing

    nothing.enqueue_many(nothing.call(n) for n in range(number))
    return number


def enqueue_many_keyed(number: int) -> int:
    from benchmarks.jobs import nothing

    nothing.enqueue_many(nothing.using(idempotency_key=f"key:{n}").call(n) for n in range(number))
    return number


def enqueue(number: int) -> int:
    from django.db import transaction

    from benchmarks.jobs import nothing

    with transaction.atomic():
        for n in range(number // PART):
            nothing.enqueue(n)
    return number // PART


def bulk_create(number: int) -> int:
    from django_jobs.models import Job

    rows = (Job(type=TYPE, payload={"args": [n], "kwargs": {}}) for n in range(number // PART))
    Job.objects.bulk_create(rows, batch_size=1_000)
    return number // PART


def executemany(number: int) -> int:
    from django.db import connection, transaction

    sql = "INSERT INTO django_jobs_job (type, payload) VALUES (%s, %s)"
    rows: Any = ((TYPE, f'{{"args": [{n}], "kwargs": {{}}}}') for n in range(number))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(sql, rows)
    return number


WAYS: dict[str, Callable[[int], int]] = {
    way.__name__: way for way in (enqueue_many, enqueue_many_keyed, enqueue, bulk_create, executemany)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs in each round (default: 100000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: 3)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # the process that does it
    options = parser.parse_args()
    if options.way:
        return do(WAYS[options.way], options.jobs)
    given = os.environ.get("DATABASE_URL")
    if given:
        return measure(given, options)
    with temporary(settings={"fsync": "on"}) as server:
        return measure(server.url, options)


def do(way: Callable[[int], int], number: int) -> int:
    import django
    from django.db import connection

    django.setup()
    way(2 * PART)
    connection.cursor().execute("TRUNCATE django_jobs_job")
    memory, started = _peak(), time.perf_counter()
    stored = way(number)
    seconds = time.perf_counter() - started
    print(stored / seconds, (_peak() - memory) / 1024)
    return 0


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(url: str, options: argparse.Namespace) -> int:
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    run: Any = {"env": environment, "cwd": ROOT, "check": True}
    subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], **run)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.enqueue", "--way", way, "--jobs", str(options.jobs)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **run)
            rate, memory = map(float, done.stdout.split())
            found[way].append((rate, memory))
    print(f"{options.jobs} jobs a round, {options.rounds} rounds")
    print(f"{'way':<20}  {'jobs/s':>8}  {'memory, MB':>10}")
    for way, rounds in found.items():
        rate, memory = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{way:<20}  {rate:>8,.0f}  {memory:>10,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
