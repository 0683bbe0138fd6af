"""The site that is measured: a web process, and workers beside it with jobs to run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.request import urlopen

import psycopg
from django.db import connection

from benchmarks.latency import number_of, wait_until
from benchmarks.pages.visits import Browser, logged_in
from benchmarks.throughput import ROOT
from example_project.postgres import free_port

DONE = "SELECT count(*) FROM django_jobs_job WHERE id > {} AND status = 'done' AND queue = 'live'"
FEW = 20
WAITING = "SELECT count(*) FROM django_jobs_job WHERE status = 'ready' AND queue = 'live'"
WORKERS = ("--queues", "live", "--processes", "1", "--no-scheduler", "--verbosity", "0")


class Site:
    def __init__(self, browser: Browser, watching: psycopg.Connection) -> None:
        self.browser = browser
        self._watching = watching
        self._first = number_of(watching, "SELECT last_value FROM django_jobs_job_id_seq")

    def done(self) -> int:
        """Return how many jobs the workers have run."""
        return number_of(self._watching, DONE.format(self._first))

    def rate(self, during: Callable[[], object]) -> float:
        """Return how many jobs a second ran meanwhile."""
        before, began = self.done(), time.monotonic()
        during()
        return (self.done() - before) / (time.monotonic() - began)


@contextmanager
def site(url: str, rate: float) -> Iterator[Site]:
    connection.close()  # the server may have been started anew
    port, cookies = free_port(), logged_in()
    commands = [
        ("-m", "benchmarks.pages.serve", str(port)),
        ("-m", "django", "runworkers", *WORKERS),
        ("-m", "benchmarks.pages.load", str(rate)),
    ]
    started = [subprocess.Popen([sys.executable, *command], cwd=ROOT, stdin=subprocess.PIPE) for command in commands]
    try:
        with psycopg.connect(url, autocommit=True) as watching:
            found = Site(Browser(port, cookies), watching)
            wait_until(lambda: _answers(port), "the web process answers")
            wait_until(lambda: found.done() > 0 and number_of(watching, WAITING) < FEW, "what was enqueued has run")
            yield found
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(60)
        connection.close()


def _answers(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/admin/login/", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
