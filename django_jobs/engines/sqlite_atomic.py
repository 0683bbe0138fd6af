"""What SQLite does for atomic runs: one at a time in a process, since each holds the write lock of the file."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, transaction

from django_jobs.engines.sqlite_parts import is_busy
from django_jobs.engines.sqlite_storing import SQLiteStoring

LOOK_SECONDS = 0.1
# Those of other processes wait for the file itself, within its busy time-out.
_turn = threading.Lock()


class SQLiteAtomic(SQLiteStoring):
    long_atomic = 1.0
    long_atomic_cost = "on SQLite nothing else can be written meanwhile"

    @contextmanager
    def turn(self, waits: Callable[[], bool]) -> Iterator[bool]:
        had = _turn.acquire(blocking=False)
        while not had and waits():
            had = _turn.acquire(timeout=LOOK_SECONDS)
        try:
            yield had
        finally:
            if had:
                _turn.release()

    @contextmanager
    def for_atomic_run(self) -> Iterator[None]:
        connection: Any = self.connection
        connection.ensure_connection()
        mode = connection.transaction_mode
        connection.transaction_mode = "IMMEDIATE"
        try:
            yield
        finally:
            connection.transaction_mode = mode

    def begin(self, block: transaction.Atomic) -> bool:
        try:
            return super().begin(block)
        except OperationalError as error:
            if is_busy(error):
                return False
            raise

    def mark(self, idle: float, limit: float | None) -> str:
        mark = f"django_jobs_{secrets.token_hex(8)}"
        with self.connection.cursor() as cursor:
            cursor.execute(f"SAVEPOINT {mark}")
        return mark

    def was_ended(self, mark: str) -> bool:
        raw: Any = self.connection.connection
        try:
            raw.execute(f"RELEASE {mark}")
        except sqlite3.OperationalError:
            return True
        return False

    def broken_by(self) -> str | None:
        raw: Any = self.connection.connection
        return None if raw.in_transaction else "ended the transaction by a COMMIT or ROLLBACK"

    def check_deferred(self) -> None:
        """Leave it to the COMMIT, which refuses what is wrong, and nothing is lost by it: all is still in one file."""

    def is_marked(self, mark: str, limit: float) -> bool:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(f"RELEASE {mark}")
        except OperationalError:
            return False
        return True
