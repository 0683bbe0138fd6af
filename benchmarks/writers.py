"""Measure what enqueueing costs 24 writers that commit all the time, as the threads of a site do.

Each transaction of theirs inserts a business row and either enqueues a job by our API or inserts a plain row of like width,
with a SELECT 1 after the commit instead of what is sent to wake workers. The writers are code of a Django project: they insert
their rows by `objects.create`, and that ratio is the one to hold. The same with both rows inserted by bare SQL on Django's
cursor, of which the enqueue is a larger part, stands beside it, with an enqueue that tells nobody (LISTEN off).

All in turns, and medians of commits a second: with no workers; with a worker that drains a prepared backlog; and with a fleet
of supervisors of one process and one thread each that run short sleeps, at about 30 to 50 % of what they could (beside the
plain rows: as many jobs, prepared, and due one after the other). Ends with 1 when a job was lost or ran twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

import psycopg

from benchmarks.latency import number_of, wait_until
from benchmarks.throughput import ROOT, django
from example_project.postgres import temporary

TABLES = """
CREATE TABLE IF NOT EXISTS business (id bigserial PRIMARY KEY, customer int NOT NULL, note text NOT NULL);
CREATE TABLE IF NOT EXISTS plain (
    id bigserial PRIMARY KEY, type text NOT NULL, queue text NOT NULL, payload jsonb NOT NULL, meta jsonb NOT NULL,
    history jsonb NOT NULL, run_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now()
);
"""
BUSINESS = "INSERT INTO business (customer, note) VALUES (%s, 'something that was bought')"
PLAIN = (
    "INSERT INTO plain (type, queue, payload, meta, history) "
    "VALUES ('benchmarks.jobs.sleep', 'default', '{\"args\": [0.005], \"kwargs\": {}}', '{}', '[]')"
)
BACKLOG = (
    "INSERT INTO django_jobs_job (type, payload, meta, run_at) "
    "SELECT %s, %s, '{\"prepared\": true}', now() + n * %s * interval '1 second' FROM generate_series(1, %s) n"
)
SLEEP_SECONDS = 0.005
# By `objects.create`, and by SQL; "unsaid" is an enqueue with LISTEN off. An enqueue comes before its plain row.
WAYS = ("enqueue", "plain", "enqueue, SQL", "plain, SQL", "unsaid, SQL")
UNFINISHED = "SELECT count(*) FROM django_jobs_job WHERE status IN ('ready', 'running')"
SITUATIONS = ("no workers", "a backlog", "a fleet")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each part (default: 4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: 3)")
    parser.add_argument("--writers", type=int, default=24, help="writers (default: 24)")
    parser.add_argument("--processes", type=int, default=4, help="processes that they are threads of (default: 4)")
    parser.add_argument("--fleet", type=int, default=8, help="supervisors of the fleet (default: 8)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each of these (default: 1)")
    parser.add_argument("--only", choices=SITUATIONS, nargs="+", default=SITUATIONS, help="measure only these")
    options = parser.parse_args()
    given = os.environ.get("DATABASE_URL")
    if given:
        return measure(given, options)
    with temporary(settings={"fsync": "on", "max_connections": "300"}) as server:
        return measure(server.url, options)


def measure(url: str, options: argparse.Namespace) -> int:
    os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    django(dict(os.environ), "migrate", "--verbosity", "0")
    print(f"{options.writers} writers, {options.rounds} rounds of {options.seconds:g} s, commits a second")
    print("            objects.create:               SQL:")
    print(
        "with        plain  enqueue  ratio         plain  enqueue  ratio  not told  jobs/s  occupied  lost  run twice"
    )
    with psycopg.connect(url, autocommit=True) as connection, Writers(options) as writers:
        connection.execute(TABLES)
        # All ways once, unmeasured.
        for way in WAYS:
            writers.write(way, 1.0)
        connection.execute("TRUNCATE django_jobs_job, business, plain")
        return sum(_situation(connection, writers, options, name) for name in options.only)


def _situation(connection: psycopg.Connection, writers: Writers, options: argparse.Namespace, name: str) -> int:
    """Measure one situation and print its line; return how many jobs were lost or ran twice."""
    found = Found()
    with supervisors(connection, options.fleet if name == "a fleet" else 0, options.threads):
        for _ in range(options.rounds):
            for way in WAYS:
                if name == "a backlog":
                    _prepare(connection, "nothing", 1, int(40_000 * options.seconds), 0.0)
                elif name == "a fleet" and way.startswith("plain"):
                    # As many as the writers have just enqueued, and some for the time that this takes.
                    just = found.rates[way.replace("plain", "enqueue")][-1]
                    _prepare(connection, "sleep", SLEEP_SECONDS, int(just * (options.seconds + 2)), 1 / just)
                with supervisors(connection, int(name == "a backlog"), 4):
                    before, began = _done(connection), time.monotonic()
                    found.rates[way].append(writers.write(way, options.seconds))
                    found.runs[way].append((_done(connection) - before) / (time.monotonic() - began))
                found.look(connection, 0 if way.startswith("plain") else writers.committed)
                if name == "a fleet":
                    connection.execute("DELETE FROM django_jobs_job WHERE meta ? 'prepared' AND status = 'ready'")
                    wait_until(lambda: number_of(connection, UNFINISHED) == 0, "all jobs have ended")
                connection.execute("TRUNCATE django_jobs_job, business, plain")
    found.say(name, options.fleet * options.threads if name == "a fleet" else 0)
    return found.lost + found.twice


class Found:
    """What was measured in one situation."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {way: [] for way in WAYS}
        self.runs: dict[str, list[float]] = {way: [] for way in WAYS}
        self.lost = self.twice = 0

    def look(self, connection: psycopg.Connection, committed: int) -> None:
        """Count what was committed and is not there or did not end well, and what ran twice."""
        ours = "SELECT count(*) FROM django_jobs_job WHERE NOT meta ? 'prepared'"
        bad = "SELECT count(*) FROM django_jobs_job WHERE status NOT IN ('ready', 'running', 'done')"
        self.lost += committed - number_of(connection, ours) + number_of(connection, bad)
        # A claim that was given back unstarted, at the end of its worker, is none.
        self.twice += number_of(connection, "SELECT count(*) FROM django_jobs_job WHERE token > 1 AND status = 'done'")

    def ratio(self, by: str) -> float:
        """Return the median of the rounds' ratios."""
        pairs = zip(self.rates[f"enqueue{by}"], self.rates[f"plain{by}"], strict=True)
        return statistics.median(told / plain for told, plain in pairs)

    def say(self, name: str, threads: int) -> None:
        rate = {way: statistics.median(rates) for way, rates in self.rates.items()}
        runs = statistics.median(self.runs["enqueue"])
        occupied = f"{runs * SLEEP_SECONDS / threads:>8.0%}" if threads else f"{'-':>8}"
        print(
            f"{name:<10}  {rate['plain']:>5,.0f}  {rate['enqueue']:>7,.0f}  {self.ratio(''):>5.2f}         "
            f"{rate['plain, SQL']:>5,.0f}  {rate['enqueue, SQL']:>7,.0f}  {self.ratio(', SQL'):>5.2f}  "
            f"{rate['unsaid, SQL']:>8,.0f}  {runs:>6,.0f}  {occupied}  {self.lost:>4}  {self.twice:>9}",
            flush=True,
        )


def _prepare(connection: psycopg.Connection, job: str, argument: float, number: int, gap: float) -> None:
    payload = f'{{"args": [{argument}], "kwargs": {{}}}}'
    connection.execute(BACKLOG, [f"benchmarks.jobs.{job}", payload, gap, number])
    connection.execute("VACUUM ANALYZE django_jobs_job")


def _done(connection: psycopg.Connection) -> int:
    return number_of(connection, "SELECT count(*) FROM django_jobs_job WHERE status = 'done'")


@contextmanager
def supervisors(connection: psycopg.Connection, number: int, threads: int) -> Iterator[None]:
    """Run so many `runworkers` of one process each."""
    command = [sys.executable, "-m", "django", "runworkers", "--verbosity", "0", "--no-scheduler"]
    started = [subprocess.Popen([*command, "--threads", str(threads)], cwd=ROOT) for _ in range(number)]
    try:
        if number:
            wait_until(
                lambda: number_of(connection, "SELECT count(*) FROM django_jobs_worker") == number, "they are ready"
            )
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)


class Writers:
    """Processes with a thread and a connection for each writer, which write when they are told to."""

    def __init__(self, options: argparse.Namespace) -> None:
        context = get_context("spawn")
        self._pipes: list[Any] = []
        self._processes = []
        for number in range(options.processes):
            ours, theirs = context.Pipe()
            threads = options.writers // options.processes + (number < options.writers % options.processes)
            self._processes.append(context.Process(target=_serve, args=(theirs, threads), daemon=True))
            self._pipes.append(ours)
        self.committed = 0

    def __enter__(self) -> Writers:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(30)

    def write(self, way: str, seconds: float) -> float:
        """Have all write for so long; return commits a second."""
        for pipe in self._pipes:
            pipe.send((way, seconds))
        answers = [pipe.recv() for pipe in self._pipes]
        self.committed = sum(number for number, _ in answers)
        return float(sum(number / took for number, took in answers))


def _serve(pipe: Any, threads: int) -> None:
    import django as framework

    framework.setup()
    from django.conf import settings

    from django_jobs.conf import conf

    barrier = threading.Barrier(threads + 1)
    counts, order = [0] * threads, [None]
    _tables()
    for index in range(threads):
        threading.Thread(target=_writer, args=(index, barrier, counts, order), daemon=True).start()
    while (asked := pipe.recv()) is not None:
        settings.DJANGO_JOBS = {"LISTEN": not asked[0].startswith("unsaid")}
        conf.cache_clear()
        order[0] = (asked[0], time.monotonic() + asked[1])  # type: ignore[call-overload]
        began = time.monotonic()
        barrier.wait()
        barrier.wait()
        pipe.send((sum(counts), time.monotonic() - began))


@cache
def _tables() -> tuple[Any, Any]:
    """Return models of the two tables, as a project would have them."""
    from django.db import models
    from django.db.models.functions import Now

    class Business(models.Model):
        customer = models.IntegerField()
        note = models.TextField()

        class Meta:
            app_label, db_table, managed = "benchmarks", "business", False

    class Plain(models.Model):
        type = models.TextField()
        queue = models.TextField(default="default")
        payload = models.JSONField()
        meta = models.JSONField(default=dict)
        history = models.JSONField(default=list)
        run_at = models.DateTimeField(db_default=Now())
        created_at = models.DateTimeField(db_default=Now())

        class Meta:
            app_label, db_table, managed = "benchmarks", "plain", False

    return Business, Plain


def _writer(index: int, barrier: threading.Barrier, counts: list[int], order: list[Any]) -> None:
    from django.db import connection, transaction

    from benchmarks.jobs import sleep

    business, stored = _tables()
    connection.ensure_connection()
    while True:
        barrier.wait()
        way, until = order[0]
        plain, by_sql = way.startswith("plain"), way.endswith("SQL")
        number = 0
        while time.monotonic() < until:
            with transaction.atomic():
                if by_sql:
                    with connection.cursor() as cursor:
                        cursor.execute(BUSINESS, [number])
                else:
                    business.objects.create(customer=number, note="something that was bought")
                if not plain:
                    sleep.enqueue(SLEEP_SECONDS)
                elif by_sql:
                    with connection.cursor() as cursor:
                        cursor.execute(PLAIN)
                else:
                    stored.objects.create(type=sleep.name, payload={"args": [SLEEP_SECONDS], "kwargs": {}})
            number += 1
            if plain:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
        counts[index] = number
        barrier.wait()


if __name__ == "__main__":
    sys.exit(main())
