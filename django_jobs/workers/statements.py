"""Ending what a thread asks of its databases, from another thread. Whoever does so throws the connections away."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ACTIVE = 1  # libpq: a statement was sent, and its end has not come
CANCEL_SECONDS = 5.0
Sessions = Mapping[str, Iterable[Any]]


def cancel(sessions: Sessions) -> None:
    """Have the servers cancel the statements being executed, without waiting for it."""
    for raw in _all(sessions):
        if hasattr(raw, "interrupt"):  # SQLite
            attempt(raw.interrupt)
        elif _waits(raw):
            # On a dead network it takes its time-out.
            threading.Thread(target=attempt, args=(_cancel, raw), name="django_jobs-cancel", daemon=True).start()


def shut_down(sessions: Sessions) -> None:
    """Break the connections that still wait for an answer, as on a network that swallows everything."""
    for raw in _all(sessions):
        if _waits(raw):
            attempt(break_off, raw)


def _all(sessions: Sessions) -> list[Any]:
    # Copied in one step each: their thread may be adding to them.
    return [raw for seen in list(sessions.values()) for raw in list(seen) if raw is not None]


def _waits(raw: Any) -> bool:
    try:
        return not raw.closed and int(raw.pgconn.transaction_status) == ACTIVE
    except Exception:
        return False  # closed meanwhile, or no connection of psycopg


def _cancel(raw: Any) -> None:
    raw.cancel_safe(timeout=CANCEL_SECONDS)


def break_off(raw: Any) -> None:
    """End a connection's traffic from another thread than its own, whose call then fails as by a broken connection."""
    number = raw.fileno()
    with socket.socket(fileno=os.dup(number)) as copy:
        # Its thread may have closed it just now, and the number be another's: the copy is of a connection that is still
        # open after the copy was made.
        if raw.fileno() == number:
            copy.shutdown(socket.SHUT_RDWR)


def attempt(act: Callable[..., object], *arguments: Any) -> None:
    try:
        act(*arguments)
    except Exception:
        pass  # it ended meanwhile, or it cannot be reached: what is done next does not depend on it
