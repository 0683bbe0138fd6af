"""A limit on our own side for our own statements: the server's time-out says nothing when its answer gets lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import log
from django_jobs.workers.statements import attempt, break_off

TICK_SECONDS = 0.5
# What a thread may wait for an answer that nobody needs any more.
HURRIED_SECONDS = 2.0


class NoAnswer(OperationalError):
    """The database did not answer a statement in time, and the connection was cut for it."""


class _Watch:
    """What one thread does on one connection: it may wait for each statement for so many seconds."""

    def __init__(self, connection: BaseDatabaseWrapper, seconds: float, hurried: Callable[[], bool]) -> None:
        self._connection = connection
        self._seconds = seconds
        self._hurried = hurried
        self._lock = threading.Lock()
        self._raw: Any = connection.connection
        self._waited = 0.0
        self._over = False
        self.cut = False

    def around(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self._restart()
        try:
            return execute(*arguments)
        finally:
            self._restart()  # for a COMMIT, which no wrapper sees

    def _restart(self) -> None:
        with self._lock:
            self._waited = 0.0

    def end(self) -> None:
        with self._lock:
            self._over = True

    def look(self, passed: float) -> None:
        """Note that so many seconds have passed; cut the connection if the thread has waited for too long.

        Under the lock: no statement may begin, and no other be met, between the decision and the cut.
        """
        with self._lock:
            raw: Any = self._connection.connection
            if self._over or raw is None:  # being connected, which has a limit of its own
                return
            if raw is not self._raw:
                self._raw, self._waited = raw, 0.0
                return
            self._waited += passed
            limit = min(self._seconds, HURRIED_SECONDS) if self._hurried() else self._seconds
            if self._waited >= limit:
                self._waited = 0.0
                self.cut = True
                attempt(break_off, raw)


class Watchdog:
    """The thread of a process that looks at all watches. Threads do not survive a fork: start it in each process."""

    def __init__(self) -> None:
        self._watches: set[_Watch] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        if self._thread.is_alive():
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._loop, args=(self._ended,), name="django_jobs-watchdog", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        if self._thread.is_alive():
            self._ended.set()
            self._thread.join()

    def _loop(self, ended: threading.Event) -> None:
        last = time.monotonic()
        while not ended.wait(TICK_SECONDS):
            now = time.monotonic()
            # A process that was frozen, or whose interpreter a handler held, could not hear the answer either.
            passed, last = min(now - last, 2 * TICK_SECONDS), now
            with self._lock:
                watches = list(self._watches)
            try:
                for watch in watches:
                    watch.look(passed)
            except Exception:
                log.loop_failed("Watching over statements")

    @contextmanager
    def guarded(self, alias: str, seconds: float, hurried: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Cut this thread's connection, and raise NoAnswer, when a statement in the block gets no answer in time.

        That is much sooner while it is `hurried`, which another thread asks.
        """
        connection = connections[alias]
        if connection.vendor != "postgresql":
            yield
            return
        watch = _Watch(connection, seconds, hurried)
        with self._lock:
            self._watches.add(watch)
        try:
            with connection.execute_wrapper(watch.around):
                yield
        except Exception as error:
            if watch.cut:
                raise NoAnswer("no answer came in time, so the connection was cut") from error
            raise
        finally:
            watch.end()
            with self._lock:
                self._watches.discard(watch)
        if watch.cut:
            connection.close()  # the answer came at the last moment


watchdog = Watchdog()
guarded = watchdog.guarded
