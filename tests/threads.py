"""Second connections for tests: calls on threads of their own, so that each has its own connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

from tests.harness import wait_for

T = TypeVar("T")
SECONDS = 30.0


class Session:
    """A connection beside the test's own: what it is given to do is done in order, on one thread."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._thread = ThreadPoolExecutor(1)
        self._atomic: transaction.Atomic | None = None
        self._last: Future[Any] | None = None
        self._connection = self.do(lambda: connections[alias])

    def start(self, call: Callable[[], T]) -> Future[T]:
        self._last = found = self._thread.submit(call)
        return found

    def do(self, call: Callable[[], T]) -> T:
        return self.start(call).result(SECONDS)

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        return self.do(lambda: _execute(self.alias, statement, parameters))

    def begin(self) -> None:
        self._atomic = transaction.atomic(using=self.alias)
        self.do(self._atomic.__enter__)

    def commit(self) -> None:
        assert self._atomic is not None
        atomic, self._atomic = self._atomic, None
        self.do(lambda: atomic.__exit__(None, None, None))

    def rollback(self) -> None:
        self.do(lambda: transaction.set_rollback(True, using=self.alias))
        self.commit()

    def close(self) -> None:
        self._cancel()
        if self._atomic is not None:
            self.rollback()
        self.do(connections.close_all)
        self._thread.shutdown()

    def _cancel(self) -> None:
        """End a statement that still waits, as it does when the test failed: others wait for its locks."""
        raw: Any = self._connection.connection
        if self._last is not None and not self._last.done() and raw is not None:
            raw.cancel() if self._connection.vendor == "postgresql" else raw.interrupt()
            wait([self._last], SECONDS)


def _execute(alias: str, statement: str, parameters: Sequence[Any]) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def session(alias: str) -> Iterator[Session]:
    found = Session(alias)
    try:
        yield found
    finally:
        found.close()


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Start every call at the same moment, each on its own thread and connection; return the results in order."""
    barrier = threading.Barrier(len(calls), timeout=SECONDS)

    def run(call: Callable[[], T]) -> T:
        try:
            for alias in connections:
                connections[alias].ensure_connection()
            barrier.wait()
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(SECONDS) for future in [pool.submit(run, call) for call in calls]]


def wait_for_blocked(number: int = 1) -> None:
    """Wait until so many PostgreSQL sessions of this database wait for a lock."""

    def blocked() -> bool:
        found = _execute(
            "default",
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            (),
        )
        return bool(found[0][0] >= number)

    wait_for(blocked, SECONDS, f"{number} sessions wait for a lock")
