"""Measure what workers cost while nothing is to be done: memory and processor time of the whole tree, and statements.

Memory is the proportional share (PSS, Linux): pages that processes share, as a forked template and its children do, are
counted once. Processor time (user and system) and statements, from the server's own log, are counted over `--seconds`.
Ends with 1 when a limit is passed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from benchmarks.throughput import ROOT, django
from example_project.postgres import Server, temporary

STATEMENT = re.compile(r"LOG: +(statement|execute [^:]*): ")
ROLES = ("supervisor", "template", "worker")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to count (default: 30)")
    parser.add_argument("--processes", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--most-mib", type=float, default=60.0, help="memory allowed (default: 60 MiB)")
    parser.add_argument("--most-cpu", type=float, default=0.1, help="CPU seconds in 30 s allowed (default: 0.1)")
    parser.add_argument("--most-statements", type=float, default=2.0, help="statements a second allowed (default: 2)")
    options = parser.parse_args()
    with temporary(settings={"log_statement": "all"}) as server:
        return measure(server, options)


def measure(server: Server, options: argparse.Namespace) -> int:
    environment = {**os.environ, "DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    django(environment, "migrate", "--verbosity", "0")
    command = [sys.executable, "-m", "django", "runworkers", "--processes", str(options.processes)]
    workers = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(server.url, options.processes)
        time.sleep(5.0)
        tree = tree_of(workers.pid)
        used, sent, started = [cpu(pid) for pid in tree], statements(server), time.monotonic()
        time.sleep(options.seconds)
        rate = (statements(server) - sent) / (time.monotonic() - started)
        used = [30.0 * (cpu(pid) - before) / options.seconds for pid, before in zip(tree, used, strict=True)]
        shares = [pss(pid) for pid in tree]
    finally:
        workers.send_signal(signal.SIGTERM)
        workers.wait(60)
    for number, (share, seconds) in enumerate(zip(shares, used, strict=True)):
        print(f"{ROLES[min(number, 2)]:<10}  {share:5.1f} MiB PSS  {seconds:.3f} CPU seconds in 30 s")
    memory, processor = sum(shares), sum(used)
    print(f"all         {memory:5.1f} MiB PSS  {processor:.3f} CPU seconds in 30 s", end=" ")
    print(f"(at most {options.most_mib:g} and {options.most_cpu:g})")
    print(f"{rate:.2f} statements a second (at most {options.most_statements:g})")
    return int(memory > options.most_mib or processor > options.most_cpu or rate > options.most_statements)


def wait_until_ready(url: str, processes: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            row = connection.execute("SELECT count(*) FROM django_jobs_worker").fetchone()
            if row is not None and row[0] == processes:
                return
            time.sleep(0.1)
    raise SystemExit("The workers did not get ready within 60 s.")


def statements(server: Server) -> int:
    return len(STATEMENT.findall(server.log.read_text(errors="replace")))


def tree_of(pid: int) -> list[int]:
    """Return the processes of a tree, the root first."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return found


def cpu(pid: int) -> float:
    """Return the seconds that the threads of a process have run, user and system."""
    counts = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(count.read_text().split()[0]) for count in counts) / 1e9


def pss(pid: int) -> float:
    """Return a process's proportional share of memory in MiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss of process {pid}")


if __name__ == "__main__":
    sys.exit(main())
