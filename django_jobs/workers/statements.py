"""Ending what a thread asks of its databases, from another thread. Whoever does so throws the connections away."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any

ACTIVE = 1  # libpq: a statement was sent, and its end has not come
CANCEL_SECONDS = 5.0
Sessions = Mapping[str, Iterable[Any]]


def cancel(sessions: Sessions) -> None:
    """Have the servers cancel the statements being executed, without waiting for it."""
    for raw in _all(sessions):
        if hasattr(raw, "interrupt"):  # SQLite
            _try(raw.interrupt)
        elif _waits(raw):
            # On a dead network it takes its time-out.
            threading.Thread(target=_try, args=(_cancel(raw),), name="django_jobs-cancel", daemon=True).start()


def shut_down(sessions: Sessions) -> None:
    """Break the connections that still wait for an answer, as on a network that swallows everything."""
    for raw in _all(sessions):
        if _waits(raw):
            _try(_shut(raw))


def _all(sessions: Sessions) -> list[Any]:
    # Copied in one step each: their thread may be adding to them.
    return [raw for seen in list(sessions.values()) for raw in list(seen) if raw is not None]


def _waits(raw: Any) -> bool:
    try:
        return not raw.closed and int(raw.pgconn.transaction_status) == ACTIVE
    except Exception:
        return False  # closed meanwhile, or no connection of psycopg


def _cancel(raw: Any) -> Any:
    return lambda: raw.cancel_safe(timeout=CANCEL_SECONDS)


def _shut(raw: Any) -> Any:
    def shut() -> None:
        copy = os.dup(raw.pgconn.socket)
        with socket.socket(fileno=copy) as ours:
            # Looked at once more: it may have been closed before the copy was made, which then is of something else.
            if _waits(raw):
                ours.shutdown(socket.SHUT_RDWR)

    return shut


def _try(act: Any) -> None:
    try:
        act()
    except Exception:
        pass  # it ended meanwhile; or it cannot be reached, and the next step of the deadline follows
