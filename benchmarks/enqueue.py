"""Measure how fast jobs are enqueued, beside what psycopg and Django insert of the same rows without any check.

Many: all jobs in one transaction. One by one: each job is committed by itself. Each way is a process of its own, rounds are
interleaved, and medians are printed, with the ratio to the yardstick: a COPY of ready lines into the table of jobs, and a
loop of psycopg's INSERT and COMMIT into a bare table (id, type, queue, payload, run_at; one index). CPU is what one job took of
this process and of its session at the server, in microseconds: it says more than rates beside other load. The memory is by how
much the process's peak grew, with calls or rows made by a generator where the way takes one.
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

import psycopg

from example_project.postgres import temporary

ROOT = Path(__file__).parent.parent
TYPE = "benchmarks.jobs.nothing"
SLOW = 10  # so much less is stored by slow ways
ONE = 50
BARE = """
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (id bigserial PRIMARY KEY, type varchar(255) NOT NULL, queue varchar(100) NOT NULL, payload jsonb NOT NULL,
                   run_at timestamptz NOT NULL DEFAULT now())
"""
Run = Callable[[], int]


def enqueue_many(number: int) -> Run:
    from benchmarks.jobs import nothing

    return lambda: len(nothing.enqueue_many(nothing.call(n) for n in range(number)))


def enqueue_many_delayed(number: int) -> Run:
    from benchmarks.jobs import nothing

    return lambda: len(nothing.enqueue_many(nothing.using(delay=n % 3600).call(n) for n in range(number)))


def enqueue_many_keyed(number: int) -> Run:
    from benchmarks.jobs import nothing

    return lambda: len(nothing.enqueue_many(nothing.using(idempotency_key=f"key:{n}").call(n) for n in range(number)))


def copy_jobs(number: int) -> Run:
    columns = "type, queue, priority, payload, run_at, max_attempts, timeout"
    tail = "\t2026-11-30 12:00:00+00\t8\t900\n"
    return _copy("django_jobs_job", columns, [f"{TYPE}\tdefault\t0\t{_payload(n)}{tail}" for n in range(number)])


def copy_bare(number: int) -> Run:
    return _copy("bare", "type, queue, payload", [f"{TYPE}\tdefault\t{_payload(n)}\n" for n in range(number)])


def copy_bare_by_row(number: int) -> Run:
    connection = psycopg.connect(os.environ["DATABASE_URL"])

    def run() -> int:
        with connection.transaction(), connection.cursor().copy("COPY bare (type, queue, payload) FROM STDIN") as copy:
            for n in range(number):
                copy.write_row((TYPE, "default", _payload(n)))
        return number

    return run


def bulk_create(number: int) -> Run:
    from django_jobs.models import Job

    rows = (Job(type=TYPE, payload={"args": [n], "kwargs": {}}) for n in range(number // SLOW))
    return lambda: len(Job.objects.bulk_create(rows, batch_size=1_000))


def enqueue_in_one_transaction(number: int) -> Run:
    from django.db import transaction

    def run() -> int:
        with transaction.atomic():
            return enqueue(number * ONE // SLOW)()

    return run


def enqueue(number: int) -> Run:
    from benchmarks.jobs import nothing

    return lambda: len([nothing.enqueue(n).pk for n in range(number // ONE)])


def enqueue_keyed(number: int) -> Run:
    from benchmarks.jobs import nothing

    return lambda: len([nothing.using(idempotency_key=f"key:{n}").enqueue(n).pk for n in range(number // ONE)])


def create(number: int) -> Run:
    from django_jobs.models import Job

    payload = {"args": [1], "kwargs": {}}
    return lambda: len([Job.objects.create(type=TYPE, payload=payload).pk for n in range(number // ONE)])


def insert_bare(number: int) -> Run:
    return _inserts("bare", number, transaction=True)


def insert_bare_without_begin(number: int) -> Run:
    return _inserts("bare", number, transaction=False)


def insert_jobs_without_begin(number: int) -> Run:
    return _inserts("django_jobs_job", number, transaction=False)


def _copy(table: str, columns: str, rows: list[str]) -> Run:
    parts = ["".join(rows[start : start + 1_000]) for start in range(0, len(rows), 1_000)]
    connection = psycopg.connect(os.environ["DATABASE_URL"])

    def run() -> int:
        with connection.transaction(), connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for part in parts:
                copy.write(part)
        return len(rows)

    return run


def _inserts(table: str, number: int, transaction: bool) -> Run:
    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=not transaction)
    sql = f"INSERT INTO {table} (type, queue, payload) VALUES (%s, %s, %s) RETURNING id"

    def run() -> int:
        for n in range(number // ONE):
            connection.execute(sql, (TYPE, "default", _payload(n))).fetchone()
            if transaction:
                connection.commit()
        return number // ONE

    return run


def _payload(n: int) -> str:
    return f'{{"args":[{n}],"kwargs":{{}}}}'


MANY = (enqueue_many, enqueue_many_delayed, enqueue_many_keyed, copy_jobs, copy_bare, copy_bare_by_row, bulk_create)
ONE_BY_ONE = (
    enqueue,
    enqueue_keyed,
    enqueue_in_one_transaction,
    insert_bare,
    insert_bare_without_begin,
    insert_jobs_without_begin,
    create,
)
WAYS: dict[str, Callable[[int], Run]] = {way.__name__: way for way in (*MANY, *ONE_BY_ONE)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs in each round (default: 100000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (default: 5)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # the process that does it
    options = parser.parse_args()
    if options.way:
        return do(WAYS[options.way], options.jobs)
    given = os.environ.get("DATABASE_URL")
    if given:
        return measure(given, options)
    with temporary(settings={"fsync": "on"}) as server:
        return measure(server.url, options)


def do(way: Callable[[int], Run], number: int) -> int:
    import django
    from django.db import connection

    django.setup()
    with connection.cursor() as cursor:
        cursor.execute(BARE)
        way(10 * ONE)()
        cursor.execute("TRUNCATE django_jobs_job, bare")
    run = way(number)
    memory, server, client, started = _peak(), _server_cpu(), time.process_time(), time.perf_counter()
    stored = run()
    seconds = time.perf_counter() - started
    used = time.process_time() - client, _server_cpu() - server
    print(stored / seconds, *(part / stored * 1e6 for part in used), (_peak() - memory) / 1024)
    return 0


def _server_cpu() -> float:
    """Return the seconds that all sessions of the server have used, where it runs on this host and that is Linux."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        pids = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
        )
        files = [Path(f"/proc/{pid}/schedstat") for (pid,) in pids]
    return sum(int(file.read_text().split()[0]) for file in files if file.exists()) / 1e9


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(url: str, options: argparse.Namespace) -> int:
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    run: Any = {"env": environment, "cwd": ROOT, "check": True}
    subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], **run)
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for name, rounds in found.items():
            command = [sys.executable, "-m", "benchmarks.enqueue", "--way", name, "--jobs", str(options.jobs)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **run)
            rounds.append([float(figure) for figure in done.stdout.split()])
    print(f"{options.jobs} jobs a round ({options.jobs // ONE} one by one), medians of {options.rounds} rounds")
    show([way.__name__ for way in MANY], found, "copy_jobs")
    show([way.__name__ for way in ONE_BY_ONE], found, "insert_bare")
    return 0


def show(names: list[str], found: dict[str, list[list[float]]], yardstick: str) -> None:
    print(f"\n{'way':<26}  {'jobs/s':>8}  {'ratio':>5}  {'CPU here':>8}  {'at the server':>13}  {'memory, MB':>10}")
    for name in names:
        rate, client, server, memory = (statistics.median(values) for values in zip(*found[name], strict=True))
        # Of each round, so that what slowed down both does not count.
        ratio = statistics.median(one[0] / other[0] for one, other in zip(found[name], found[yardstick], strict=True))
        print(f"{name:<26}  {rate:>8,.0f}  {ratio:>5.2f}  {client:>8.1f}  {server:>13.1f}  {memory:>10.1f}")


if __name__ == "__main__":
    sys.exit(main())
