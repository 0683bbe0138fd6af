"""Measure how fast trivial jobs are drained, beside a bare psycopg loop in the same run.

The bare loop claims 100 rows and completes 100 rows in one statement each, with no leases, retries or history: what is
above it is the price of everything else. Rounds are interleaved, and medians are printed; only ratios mean something,
since other load on the machine moves both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import psycopg

from example_project.postgres import temporary

ROOT = Path(__file__).parent.parent
TYPE = "benchmarks.jobs.nothing"
BATCH = 100

BARE_TABLE = """
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (id bigserial PRIMARY KEY, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'ready');
CREATE INDEX bare_ready ON bare (id) WHERE status = 'ready';
"""
BARE_CLAIM = """
UPDATE bare SET status = 'running'
 WHERE id = ANY (ARRAY(SELECT id FROM bare WHERE status = 'ready' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""
BARE_COMPLETE = "UPDATE bare SET status = 'done' WHERE id = ANY (%s)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in each round (default: 20000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: 3)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="worker processes (default: 1 2)")
    parser.add_argument("--threads", type=int, default=4, help="threads in each process (default: 4)")
    options = parser.parse_args()
    given = os.environ.get("DATABASE_URL")
    if given:
        return measure(given, options)
    with temporary(settings={"fsync": "on"}) as server:
        return measure(server.url, options)


def measure(url: str, options: argparse.Namespace) -> int:
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    django(environment, "migrate", "--verbosity", "0")
    faults = 0
    with psycopg.connect(url, autocommit=True) as connection:
        version = connection.info.server_version
        print(f"PostgreSQL {version // 10000}.{version % 10000}, {options.jobs} jobs a round, {options.rounds} rounds")
        print(f"{'processes':>9}  {'bare loop/s':>12}  {'django_jobs/s':>13}  {'ratio':>5}  lost  run twice")
        for processes in options.processes:
            bare: list[float] = []
            ours: list[float] = []
            lost = twice = 0
            for _ in range(options.rounds):
                bare.append(run_bare(connection, url, options.jobs, processes))
                rate, missing, repeated = run_ours(connection, environment, options, processes)
                ours.append(rate)
                lost, twice = lost + missing, twice + repeated
            middle, mine = statistics.median(bare), statistics.median(ours)
            print(f"{processes:>9}  {middle:>12,.0f}  {mine:>13,.0f}  {mine / middle:>5.2f}  {lost:>4}  {twice:>9}")
            faults += lost + twice
    return 1 if faults else 0


def django(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "django", *arguments], env=environment, cwd=ROOT, check=True)


def run_bare(connection: psycopg.Connection, url: str, jobs: int, processes: int) -> float:
    connection.execute(BARE_TABLE)
    connection.execute("INSERT INTO bare (payload) SELECT '{\"args\": [1]}' FROM generate_series(1, %s)", [jobs])
    connection.execute("VACUUM ANALYZE bare")
    context = get_context("spawn")
    ready, go = context.Barrier(processes + 1), context.Event()
    workers = [context.Process(target=bare_worker, args=(url, ready, go)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    ready.wait()
    started = time.perf_counter()
    go.set()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    row = connection.execute("SELECT count(*) FROM bare WHERE status = 'done'").fetchone()
    assert row is not None
    assert row[0] == jobs
    return jobs / seconds


def bare_worker(url: str, ready: object, go: object) -> None:
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
        ready.wait()  # type: ignore[attr-defined]
        go.wait()  # type: ignore[attr-defined]
        while rows := connection.execute(BARE_CLAIM).fetchall():
            for _, payload in rows:
                handle(payload["args"][0])
            connection.execute(BARE_COMPLETE, [[row[0] for row in rows]])


handle: Callable[[int], None] = lambda number: None  # noqa: E731 (what benchmarks.jobs.nothing does)


def run_ours(
    connection: psycopg.Connection, environment: dict[str, str], options: argparse.Namespace, processes: int
) -> tuple[float, int, int]:
    """Drain the jobs with `runworkers --burst`; return jobs/s, how many were lost and how many ran twice."""
    connection.execute("TRUNCATE django_jobs_job")
    connection.execute(
        "INSERT INTO django_jobs_job (type, payload) "
        'SELECT %s, \'{"args": [1], "kwargs": {}}\' FROM generate_series(1, %s)',
        [TYPE, options.jobs],
    )
    connection.execute("VACUUM ANALYZE django_jobs_job")
    django(
        environment, "runworkers", "--burst", "--verbosity", "0",
        "--processes", str(processes), "--threads", str(options.threads),
    )  # fmt: skip
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE token > 1),"
        " extract(epoch FROM max(finished_at) - min(last_started_at))::float8 FROM django_jobs_job"
    ).fetchone()
    assert row is not None
    done, twice, seconds = row
    return done / seconds, options.jobs - done, twice


if __name__ == "__main__":
    sys.exit(main())
