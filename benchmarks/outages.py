"""Crash PostgreSQL again and again under two `runworkers` and a steady stream of jobs, and count what it cost.

Nothing may be lost: a job whose enqueue returned is done in the end. Nothing may be charged: no job has an attempt. How
often jobs ran again is what SQL says by their tokens. After each crash it is measured how long after the server lets
clients in again a job ends, and until every worker process has run one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import psycopg

from example_project.postgres import Server, temporary

ROOT = Path(__file__).parent.parent
FLOW_WITHIN = 10.0
# Threads that enqueue, each on its own connection.
STREAMS = 6
DRAIN_WITHIN = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="how long jobs are enqueued (default: 300)")
    parser.add_argument("--crashes", type=int, default=5, help="crashes in that time (default: 5)")
    parser.add_argument("--rate", type=float, default=500, help="jobs enqueued a second (default: 500)")
    parser.add_argument("--processes", type=int, default=1, help="worker processes of each runworkers (default: 1)")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file for what runworkers say")
    options = parser.parse_args()
    with temporary() as server:
        os.environ |= {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        ask(server, "CREATE TABLE written (number bigint, pid bigint, at timestamptz DEFAULT clock_timestamp())")
        with options.log.open("ab") as log:
            trees = [start(options.processes, log) for _ in range(2)]
            try:
                return storm(server, trees, options)
            finally:
                for tree in trees:
                    tree.terminate()
                print("exit codes", [tree.wait(60) for tree in trees])


def start(processes: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "django", "runworkers", "--processes", str(processes)]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


def ask(server: Server, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url, autocommit=True, connect_timeout=2) as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


class Stream(threading.Thread):
    """Enqueues at a rate, as a process does that lives long; what was refused is not tried again."""

    def __init__(self, first: int, rate: float, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._first = first
        self._rate = rate
        self.over = over
        self.stored: list[int] = []
        self.refused = 0

    def run(self) -> None:
        from benchmarks.jobs import write

        started, number = time.monotonic(), 0
        while not self.over.is_set():
            try:
                self.stored.append(write.enqueue(self._first + number).pk)
            except Exception:
                self.refused += 1
                self.over.wait(0.1)
                started = time.monotonic() - number / self._rate
            number += 1
            self.over.wait(max(started + number / self._rate - time.monotonic(), 0.0))


def storm(server: Server, trees: list[subprocess.Popen[bytes]], options: argparse.Namespace) -> int:
    import django

    django.setup()
    count = 2 * options.processes
    wait_for_pids(server, "SELECT count(*) FROM django_jobs_worker", count)
    over = threading.Event()
    streams = [Stream(index * 10**9, options.rate / STREAMS, over) for index in range(STREAMS)]
    began = time.monotonic()
    for stream in streams:
        stream.start()
    slow = 0
    for number in range(options.crashes):
        pause = options.seconds * (number + 0.5) / options.crashes - (time.monotonic() - began)
        time.sleep(max(pause, 0.0))
        slow += crash(server, number, count)
    time.sleep(max(options.seconds - (time.monotonic() - began), 0.0))
    over.set()
    for stream in streams:
        stream.join()
    faults = slow + account(server, streams)
    ended = [tree.poll() for tree in trees if tree.poll() is not None]
    print("runworkers that ended by themselves:", ended or "none")
    return 1 if faults or ended else 0


def wait_for_pids(server: Server, statement: str, count: int, *parameters: object) -> float:
    began = time.monotonic()
    while time.monotonic() - began < 60:
        found = ask(server, statement, *parameters)[0][0]
        if isinstance(found, int) and found >= count:
            break
        time.sleep(0.05)
    return time.monotonic() - began


def crash(server: Server, number: int, count: int) -> bool:
    """Crash the server; return whether it took too long until jobs flowed again."""
    server.restart("immediate")
    while True:
        try:
            back = ask(server, "SELECT clock_timestamp()")[0][0]
            break
        except psycopg.OperationalError:
            time.sleep(0.02)
    since = "FROM written WHERE at > %s"
    first = wait_for_pids(server, f"SELECT count(*) {since}", 1, back)
    every = first + wait_for_pids(server, f"SELECT count(DISTINCT pid) {since}", count, back)
    print(f"crash {number + 1}: a job ran {first:.1f} s after the return, every process's {every:.1f} s", flush=True)
    return every > FLOW_WITHIN


def account(server: Server, streams: list[Stream]) -> int:
    """Wait until all is done and say what it cost; return how many jobs were lost or charged."""
    wait_for_none_left(server)
    stored = [pk for stream in streams for pk in stream.stored]
    refused = sum(stream.refused for stream in streams)
    ((jobs, done, charged, runs, losses),) = ask(
        server,
        "SELECT count(*), count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE attempts > 0),"
        " sum(token)::bigint, sum(jsonb_array_length(history))::bigint FROM django_jobs_job",
    )
    ((rows, numbers),) = ask(server, "SELECT count(*), count(DISTINCT number) FROM written")
    missing = ask(
        server, "SELECT count(*) FROM unnest(%s::bigint[]) AS given(id) WHERE NOT EXISTS"
        " (SELECT 1 FROM django_jobs_job job WHERE job.id = given.id AND job.status = 'done')", stored,
    )[0][0]  # fmt: skip
    causes = ask(
        server, "SELECT line ->> 'cause', count(*) FROM django_jobs_job, jsonb_array_elements(history) AS line"
        " GROUP BY 1 ORDER BY 1",
    )  # fmt: skip
    print(f"enqueued {len(stored)}, refused {refused}; stored {jobs}, done {done}")
    print(f"lost {missing}, charged {charged}")
    print(
        f"claims {runs}, above one a job {int(str(runs)) - int(str(jobs))}; runs that ended as a loss {losses}: {causes}"
    )
    print(f"rows written {rows}, of {numbers} jobs: {int(str(rows)) - int(str(numbers))} written again")
    return int(str(missing)) + int(str(charged)) + int(str(jobs)) - int(str(done))


def wait_for_none_left(server: Server) -> None:
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_WITHIN:
        if ask(server, "SELECT count(*) FROM django_jobs_job WHERE status IN ('ready', 'running')") == [(0,)]:
            return
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
