"""On SQLite one `runworkers` at a time serves a file: its leases are judged by what that one knows of its children."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from django_jobs.exceptions import ConfigurationError


def lock(database: str, wait: float) -> int:
    """Lock the database file for this process tree; return the descriptor that holds the lock.

    Waits up to `wait` seconds for what is left of a tree whose supervisor is gone. Raises ConfigurationError, naming
    the other supervisor's pid, when one lives.
    """
    path = Path(f"{database}.runworkers")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode().strip()
            if _lives(owner) or time.monotonic() > until:
                os.close(descriptor)
                raise ConfigurationError(
                    f"Another runworkers (pid {owner or 'unknown'}) serves {database}. On SQLite there can be one; "
                    "stop it first, or move to PostgreSQL."
                ) from None
            time.sleep(0.1)  # nothing tells when a lock of others is free
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return descriptor


def _lives(owner: str) -> bool:
    try:
        os.kill(int(owner), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
