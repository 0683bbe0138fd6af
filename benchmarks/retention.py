"""Measure what it costs to take old rows away, and what the claims notice of it.

First the cost of a row: changed, deleted, moved to the archive, dropped with its partition (server time, its CPU, bytes of
WAL), and what a round of the archive passes over: rows that stay, and entries of rows that are gone while an old snapshot
keeps them. Then a tree of workers drains a backlog while a day's partition of `--rows` is dropped, and while old jobs are
moved: rates before, during and after, from the times at which jobs ended. Ends with 1 when the drop took over a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import psycopg

from benchmarks.throughput import ROOT, TYPE, django
from example_project.postgres import temporary

BATCH = 500
ARCHIVE = "django_jobs_archivedjob"
MOVE = (ROOT / "django_jobs" / "engines" / "sql" / "archive.sql").read_text()
TICK = os.sysconf("SC_CLK_TCK")
OLD = """
INSERT INTO django_jobs_job (type, payload, status, token, created_at, started_at, last_started_at, finished_at)
SELECT 'shop.jobs.send_receipt', '{"args": [1], "kwargs": {"order": 17}}', 'done', 1, old, old, old, old + interval '1 second'
  FROM (SELECT now() - interval '2 days' AS old) times, generate_series(1, %s)
"""
WAITING = """
INSERT INTO django_jobs_job (type, payload, run_at, created_at)
SELECT 'shop.jobs.send_receipt', '{"args": [1], "kwargs": {}}', now() + interval '30 days', now() - interval '2 days'
  FROM generate_series(1, %s)
"""
PARTITION = """
CREATE TABLE IF NOT EXISTS django_jobs_archivedjob_old PARTITION OF django_jobs_archivedjob
FOR VALUES FROM ('2001-01-01') TO ('2001-01-02') WITH (autovacuum_enabled = off)
"""
ARCHIVED = """
INSERT INTO django_jobs_archivedjob (id, type, payload, status, token, archived_at, finished_at)
SELECT -number, 'shop.jobs.send_receipt', '{"args": [1], "kwargs": {"order": 17}}', 'done', 1, '2001-01-01 12:00', '2001-01-01'
  FROM generate_series(1, %s) number
"""
BEGIN = """
import sys, threading, django; django.setup()
from datetime import timedelta
from django.db import connection
from django_jobs.engines.archive import archive
from django_jobs.queue.archive import Round
cursor = connection.cursor()
def clock():
    cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
    return cursor.fetchone()[0]
sys.stdin.readline()
"""
DROP = (
    BEGIN
    + """
found = archive()
(partition,) = found.forgettable(timedelta(days=7))
began = clock()
found.drop(partition)
print(began, clock())
"""
)
ROUND = (
    BEGIN
    + """
began = clock()
for pause in Round(archive()).steps():
    threading.Event().wait(pause)
print(began, clock())
"""
)
AGES = {"done": "1 day", "dead": "30 days", "keyed": "1 day"}


class Cost(NamedTuple):
    """Of one row: microseconds, those of the server's CPU, and bytes of WAL."""

    time: float
    cpu: float
    wal: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="rows of the day that is dropped (default: 3000000)"
    )
    parser.add_argument(
        "--moved", type=int, default=50_000, help="rows whose cost is measured, and that are moved (default: 50000)"
    )
    parser.add_argument("--jobs", type=int, default=250_000, help="jobs drained meanwhile (default: 250000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: 3)")
    options = parser.parse_args()
    with temporary(settings={"fsync": "on", "max_wal_size": "4GB"}) as server:
        environment = {**os.environ, "DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        django(environment, "migrate", "--verbosity", "0")
        with psycopg.connect(server.url, autocommit=True, prepare_threshold=1) as connection:
            connection.execute("SET enable_bitmapscan = off")
            connection.execute(
                "CREATE TABLE django_jobs_archivedjob_now PARTITION OF django_jobs_archivedjob "
                "FOR VALUES FROM ('2020-01-01') TO ('2999-01-01')"
            )
            version = connection.info.server_version
            print(f"PostgreSQL {version // 10000}.{version % 10000}, {options.moved} rows, {options.rounds} rounds\n")
            costs(connection, options)
            passing(connection, server.url, options)
            held(connection, options.rows)
            return under_load(connection, environment, options)


def costs(connection: psycopg.Connection, options: argparse.Namespace) -> None:
    ways: dict[str, Callable[[int], None]] = {
        "changed, no index touched (a heartbeat)": lambda rows: changed(connection, rows, "locked_by = NULL"),
        "changed, with its place in the indexes": lambda rows: changed(connection, rows, "status = 'cancelled'"),
        "deleted": lambda rows: moved(connection, rows, keep=False),
        "moved to the archive": lambda rows: moved(connection, rows, keep=True),
        "dropped with its partition": lambda rows: drop(connection),
    }
    found: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            fill(connection, options.moved, dropped="dropped" in name)
            found[name].append(cost(connection, options.moved, way))
    print("| a row is | us | server CPU us | bytes of WAL |\n|---|--:|--:|--:|")
    for name, measured in found.items():
        middle = [statistics.median(values) for values in zip(*measured, strict=True)]
        print(f"| {name} | {middle[0]:.2f} | {middle[1]:.2f} | {middle[2]:.1f} |")


def fill(connection: psycopg.Connection, rows: int, *, dropped: bool) -> None:
    connection.execute("TRUNCATE django_jobs_job, django_jobs_archivedjob RESTART IDENTITY")
    if dropped:
        connection.execute(PARTITION)
        connection.execute(ARCHIVED, [rows])
    else:
        connection.execute(OLD, [rows])
    connection.execute("VACUUM ANALYZE django_jobs_job")
    connection.execute("CHECKPOINT")


def cost(connection: psycopg.Connection, rows: int, way: Callable[[int], None]) -> Cost:
    before, wal, began = cpu(connection), lsn(connection), time.perf_counter()
    way(rows)
    took = time.perf_counter() - began
    return Cost(took / rows * 1e6, (cpu(connection) - before) / rows * 1e6, (lsn(connection) - wal) / rows)


def cpu(connection: psycopg.Connection) -> float:
    """Return the seconds of CPU that the connection's server process has used."""
    with open(f"/proc/{connection.info.backend_pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def lsn(connection: psycopg.Connection) -> float:
    row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").fetchone()
    assert row is not None
    return float(row[0])


def changed(connection: psycopg.Connection, rows: int, what: str) -> None:
    for first in range(0, rows, BATCH):
        connection.execute(f"UPDATE django_jobs_job SET {what} WHERE id > %s AND id <= %s", [first, first + BATCH])


def drop(connection: psycopg.Connection) -> None:
    connection.execute("DROP TABLE django_jobs_archivedjob_old")


def moved(connection: psycopg.Connection, rows: int, *, keep: bool) -> None:
    taken = after = 0
    while taken < rows:
        parameters = {**AGES, "keep": keep, "after": after, "upto": after + 4 * BATCH, "limit": BATCH}
        number, after, _ = step(connection, parameters)
        taken += number


def step(connection: psycopg.Connection, parameters: dict[str, object]) -> tuple[int, int, bool]:
    sql = MOVE
    for name in AGES:
        sql = sql.replace(f"%({name})s", f"%({name})s::interval")
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def passing(connection: psycopg.Connection, url: str, options: argparse.Namespace) -> None:
    """What a round costs that finds nothing, behind what lies in its way."""
    rows = 20 * options.moved
    print(f"\n| a round passes over {rows:,} | seconds |\n|---|--:|")
    connection.execute("TRUNCATE django_jobs_job, django_jobs_archivedjob RESTART IDENTITY")
    connection.execute(WAITING, [rows])
    connection.execute("VACUUM ANALYZE django_jobs_job")
    print(f"| jobs that wait | {walk(connection, rows):.2f} |")
    connection.execute("TRUNCATE django_jobs_job RESTART IDENTITY")
    connection.execute(OLD, [rows])
    connection.execute("VACUUM ANALYZE django_jobs_job")
    with psycopg.connect(url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM django_jobs_job LIMIT 1")
        moved(connection, rows, keep=False)
        print(f"| jobs that are gone, under an old snapshot | {walk(connection, rows):.2f} |")


def walk(connection: psycopg.Connection, rows: int) -> float:
    began = time.perf_counter()
    span, after = 4 * BATCH, 0
    while after < rows:
        started = time.perf_counter()
        step(connection, {**AGES, "keep": True, "after": after, "upto": after + span, "limit": BATCH})
        after += span
        span = span * 2 if time.perf_counter() - started < 0.02 else span
    return time.perf_counter() - began


def held(connection: psycopg.Connection, rows: int) -> None:
    """Say for how long a drop locks readers of the archive out, and how long the removal of the files takes after that."""
    fill(connection, rows, dropped=True)
    with connection.transaction():
        began = time.perf_counter()
        connection.execute(f"LOCK TABLE ONLY {ARCHIVE}, ONLY {ARCHIVE}_old IN ACCESS EXCLUSIVE MODE NOWAIT")
        drop(connection)
        dropped = time.perf_counter()
    committed = time.perf_counter()
    print(
        f"\nA drop of {rows:,} rows holds its lock for {(dropped - began) * 1000:.0f} ms; its files are removed without it, "
        f"within {committed - dropped:.2f} s."
    )


def under_load(connection: psycopg.Connection, environment: dict[str, str], options: argparse.Namespace) -> int:
    print(f"\nA tree with one process drains {options.jobs:,} jobs meanwhile.\n")
    print("| what | seconds | jobs/s before | meanwhile | after |\n|---|--:|--:|--:|--:|")
    worst = 0.0
    for _ in range(options.rounds):
        for name, rows in (("dropped", options.rows), ("moved", options.moved)):
            fill(connection, rows, dropped=name == "dropped")
            connection.execute(
                "INSERT INTO django_jobs_job (type, payload) "
                'SELECT %s, \'{"args": [1], "kwargs": {}}\' FROM generate_series(1, %s)',
                [TYPE, options.jobs],
            )
            connection.execute("VACUUM ANALYZE django_jobs_job")
            began, ended = during_a_drain(connection, environment, dropped=name == "dropped")
            before, meanwhile, after = (rate(connection, *times) for times in around(began, ended))
            print(
                f"| {rows:,} rows {name} | {ended - began:.2f} | {before:,.0f} | {meanwhile:,.0f} | {after:,.0f} |",
                flush=True,
            )
            worst = max(worst, ended - began if name == "dropped" else 0.0)
    return int(worst > 1.0)


def during_a_drain(
    connection: psycopg.Connection, environment: dict[str, str], *, dropped: bool
) -> tuple[float, float]:
    """Drop the partition, or make a round of the archive, in the midst of a drain; return when it began and ended.

    It begins three seconds after the first job, and its process has started before. Until then the archive is ours, so that
    the tree does not do it at its start.
    """
    connection.execute("SELECT pg_advisory_lock(%s, 1)", [0x646A6F62])
    workers = [sys.executable, "-m", "django", "runworkers", "--burst", "--verbosity", "0"]
    drain = subprocess.Popen(workers, env=environment, cwd=ROOT)
    mover = subprocess.Popen(
        [sys.executable, "-c", DROP if dropped else ROUND],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not connection.execute("SELECT 1 FROM django_jobs_job WHERE status = 'running' LIMIT 1").fetchone():
        time.sleep(0.05)
    time.sleep(3.0)
    connection.execute("SELECT pg_advisory_unlock(%s, 1)", [0x646A6F62])
    out, _ = mover.communicate("go\n")
    drain.wait()
    began, ended = map(float, out.split())
    return began, ended


def around(began: float, ended: float) -> list[tuple[float, float]]:
    """Return the two seconds before, the time itself (a quarter of a second at least), and the two seconds after."""
    return [(began - 2.0, began), (began, max(ended, began + 0.25)), (ended, ended + 2.0)]


def rate(connection: psycopg.Connection, since: float, until: float) -> float:
    row = connection.execute(
        "SELECT count(*) FROM django_jobs_job "
        "WHERE type = %s AND finished_at >= to_timestamp(%s) AND finished_at < to_timestamp(%s)",
        [TYPE, since, until],
    ).fetchone()
    assert row is not None
    return float(row[0] / (until - since))


if __name__ == "__main__":
    sys.exit(main())
