"""Measure how soon an idle worker starts a job, beside a bare psycopg loop with LISTEN in the same run.

Jobs are enqueued one at a time at random gaps, in turns for `runworkers` and for the bare loop; the time is from before the
enqueue to the start of the handler. The bare enqueue is an INSERT and a NOTIFY in one transaction, the bare worker claims
when it hears it. Jobs that were not started, or twice, are counted; both must be 0.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import psycopg

from benchmarks.throughput import BARE_CLAIM, BARE_COMPLETE, BARE_TABLE, ROOT, django
from example_project.postgres import temporary

LISTENS = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('django_jobs:listener', 'bare')"
WAIT_SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="jobs for each of the two (default: 300)")
    parser.add_argument(
        "--gaps", type=float, nargs=2, default=[0.03, 0.2], metavar=("FROM", "TO"),
        help="seconds between an enqueue and the next, which is for the other one (default: 0.03 0.2)",
    )  # fmt: skip
    parser.add_argument("--processes", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--threads", type=int, default=4, help="threads in each process (default: 4)")
    options = parser.parse_args()
    given = os.environ.get("DATABASE_URL")
    if given:
        return measure(given, options)
    with temporary(settings={"fsync": "on"}) as server:
        return measure(server.url, options)


def measure(url: str, options: argparse.Namespace) -> int:
    os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    django(dict(os.environ), "migrate", "--verbosity", "0")
    with tempfile.TemporaryDirectory() as directory, psycopg.connect(url, autocommit=True) as connection:
        paths = [Path(directory) / name for name in ("ours", "bare")]
        for path in paths:
            path.touch()
        connection.execute(BARE_TABLE)
        bare = get_context("spawn").Process(target=bare_worker, args=(url, str(paths[1])), daemon=True)
        bare.start()
        command = [sys.executable, "-m", "django", "runworkers", "--verbosity", "0"]
        command += ["--processes", str(options.processes), "--threads", str(options.threads)]
        workers = subprocess.Popen(command, cwd=ROOT)
        try:
            wait_until(lambda: number_of(connection, LISTENS) == 2, "both listen")
            before = enqueue_all(connection, options, [str(path) for path in paths])
            wait_until(lambda: all(len(starts(path)) >= options.jobs for path in paths), "all have started")
        finally:
            workers.send_signal(signal.SIGTERM)
            workers.wait(60)
            bare.terminate()
        return say(before, [starts(path) for path in paths], options)


def enqueue_all(connection: psycopg.Connection, options: argparse.Namespace, paths: list[str]) -> list[list[float]]:
    """Return when each enqueue began: ours, and the bare ones."""
    import django as framework

    framework.setup()
    from benchmarks.jobs import note

    before: list[list[float]] = [[], []]
    for number in range(options.jobs):
        time.sleep(random.uniform(*options.gaps))
        before[0].append(time.monotonic())
        note.enqueue(number, paths[0])
        time.sleep(random.uniform(*options.gaps))
        before[1].append(time.monotonic())
        with connection.transaction():
            connection.execute("INSERT INTO bare (payload) VALUES (%s)", [f'{{"args": [{number}]}}'])
            connection.execute("NOTIFY bare")
    return before


def bare_worker(url: str, path: str) -> None:
    from benchmarks.jobs import leave

    with psycopg.connect(url, autocommit=True, prepare_threshold=1, application_name="bare") as connection:
        connection.execute("LISTEN bare")
        while True:
            while rows := connection.execute(BARE_CLAIM).fetchall():
                for _, payload in rows:
                    leave(path, payload["args"][0])
                connection.execute(BARE_COMPLETE, [[row[0] for row in rows]])
            list(connection.notifies(timeout=1.0, stop_after=1))


def starts(path: Path) -> list[tuple[int, float]]:
    return [(int(number), float(at)) for number, at in map(str.split, path.read_text().splitlines())]


def say(before: list[list[float]], started: list[list[tuple[int, float]]], options: argparse.Namespace) -> int:
    print(f"{options.jobs} jobs each, gaps of {options.gaps[0]:g} to {options.gaps[1]:g} s, milliseconds to the start")
    print(f"{'':<12}  {'p50':>6}  {'p95':>6}  {'p99':>6}  {'most':>6}  lost  run twice")
    found, faults = [], 0
    for name, begun, ends in zip(("django_jobs", "bare loop"), before, started, strict=True):
        times = Counter(number for number, _ in ends)
        lost, twice = len(begun) - len(times), sum(number > 1 for number in times.values())
        waits = sorted(1000 * (at - begun[number]) for number, at in ends)
        parts = [waits[min(int(len(waits) * part), len(waits) - 1)] for part in (0.5, 0.95, 0.99, 1.0)]
        print(f"{name:<12}  " + "  ".join(f"{value:>6.1f}" for value in parts) + f"  {lost:>4}  {twice:>9}")
        found.append(parts)
        faults += lost + twice
    print(f"{'ratio':<12}  " + "  ".join(f"{ours / bare:>6.2f}" for ours, bare in zip(*found, strict=True)))
    return 1 if faults else 0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"Not within {WAIT_SECONDS:g} s: {what}.")
        time.sleep(0.1)


def number_of(connection: psycopg.Connection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    sys.exit(main())
