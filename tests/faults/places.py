"""Where the trees of a storm run, and who enqueues their jobs."""

from __future__ import annotations

import signal
import threading
import time

from django.db import DatabaseError, InterfaceError, connections

from django_jobs import JobFunction
from tests.app.storm_jobs import book, pay, remind
from tests.harness import RunWorkers, Tree
from tests.processes.common import session_pids

LEASE = 3.0
SETTINGS = {
    "LEASE": LEASE,
    "HEARTBEAT": 1,
    "POLL_INTERVAL": 0.2,
    "SHUTDOWN_GRACE": 5,
    "SOLO_PROCESSES": 2,
    "ATOMIC_IDLE": 10,
    "BACKOFF": (0.2, 2, 2),
}
THREADS = 3
KINDS: tuple[JobFunction[..., ..., None], ...] = (pay, book, remind)


class Place:
    """Where a tree runs: whenever it has ended, another is started."""

    def __init__(self, tree: Tree, env: dict[str, str]) -> None:
        self._tree = tree
        self._env = env
        self.workers: RunWorkers | None = None
        self._ended: list[RunWorkers] = []

    def start(self) -> None:
        options = ("--processes", "1", "--threads", str(THREADS))
        self.workers = self._tree.start(*options, settings=SETTINGS, env=self._env)

    def wait_until_ready(self) -> None:
        assert self.workers is not None
        self.workers.wait_until_ready()

    def keep_alive(self) -> None:
        if self.workers is not None and self.workers.process.poll() is not None:
            assert self.workers.process.returncode == -signal.SIGKILL, self.workers.log
            self._ended.append(self.workers)
            self.start()

    def has_no_orphans(self) -> bool:
        for workers in [ended for ended in self._ended if not session_pids(ended.pid)]:
            self._ended.remove(workers)
            self._tree.forget(workers)
        return not self._ended


class Enqueuer(threading.Thread):
    """Enqueues jobs of all kinds at a rate, each with a number of its own, and knows which enqueues returned."""

    def __init__(self, rate: float) -> None:
        super().__init__(name="enqueuer", daemon=True)
        self._rate = rate
        self._over = threading.Event()
        self.stored: list[int] = []
        self.refused = 0

    def run(self) -> None:
        number, began = 0, time.monotonic()
        while not self._over.is_set():
            try:
                self.stored.append(KINDS[number % len(KINDS)].enqueue(number).pk)
            except (DatabaseError, InterfaceError, OSError):
                self.refused += 1
                self._over.wait(0.1)
            number += 1
            self._over.wait(max(began + number / self._rate - time.monotonic(), 0.0))
        connections.close_all()

    def end(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()
