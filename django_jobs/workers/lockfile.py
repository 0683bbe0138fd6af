"""On SQLite one `runworkers` at a time serves a file: its leases are judged by what that one knows of its children."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError, connections

from django_jobs.engines.sqlite_parts import is_busy
from django_jobs.exceptions import ConfigurationError


def take_file(alias: str, wait: float) -> int:
    """Lock the jobs' SQLite file for this tree, and have it written ahead, so that readers and a writer do not wait.

    Return the descriptor that holds the lock: closed by this process, it is held only by children that still live.
    """
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("PRAGMA database_list")
            name = next(row[2] for row in cursor.fetchall() if row[1] == "main")
            if not name:
                raise ConfigurationError(
                    "An SQLite database in memory cannot be shared with workers; give NAME a file."
                )
            descriptor = _lock(Path(name), wait)
            _write_ahead(cursor, wait)
    except OperationalError as error:
        raise ConfigurationError(f"The SQLite database cannot be opened: {error}.") from error
    connections[alias].close()
    return descriptor


def _write_ahead(cursor: Any, wait: float) -> None:
    # The change of the journal needs the file for a moment and, unlike other statements, does not wait for those that use it.
    until = time.monotonic() + wait
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(0.05)  # nothing tells when they are done


def _lock(database: Path, wait: float) -> int:
    """Lock the database file for this process tree; return the descriptor that holds the lock.

    Raises ConfigurationError, naming its pid, when another supervisor lives. What is left of a tree whose supervisor
    is gone is waited for up to `wait` seconds.
    """
    path = database.with_name(f"{database.name}.runworkers")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    # A record lock belongs to this process alone; a lock of the open file lasts as long as any child that inherits it.
    if not _locked(fcntl.lockf, descriptor):
        raise _refusal(descriptor, "Another runworkers", database)
    until = time.monotonic() + wait
    while not _locked(fcntl.flock, descriptor):
        if time.monotonic() > until:
            raise _refusal(descriptor, "What is left of another runworkers", database)
        time.sleep(0.05)  # nothing tells when a lock of others is free
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _locked(lock_by: Callable[[int, int], object], descriptor: int) -> bool:
    try:
        lock_by(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _refusal(descriptor: int, who: str, database: Path) -> ConfigurationError:
    pid = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
    os.close(descriptor)
    return ConfigurationError(
        f"{who} (pid {pid}) serves {database}. On SQLite there can be one; stop it first, or move to PostgreSQL."
    )
