"""What the database connections of worker processes have that those of the site need not have."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from typing import Any

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_jobs.engines.idle import in_transaction
from django_jobs.exceptions import JobsError

SQLITE_WAIT = 30.0
# With these, all is well again within ten seconds of the end of any outage, however long a lease is.
STATEMENT_SECONDS = 7.0
CONNECT_SECONDS = 5.0
# What an answer may take on its way back after the server's time-out.
ANSWER_SECONDS = 1.5
_threads = threading.local()
_opened = threading.local()
_CONNECT = inspect.unwrap(BaseDatabaseWrapper.connect).__code__


class TransactionLeftOpen(JobsError):
    """A handler ended with a transaction open, or with autocommit off."""

    def __init__(self, aliases: list[str]) -> None:
        super().__init__(
            f"The handler ended with a transaction open on the database {', '.join(map(repr, aliases))}; it was rolled "
            "back. Use `with transaction.atomic()`, which ends what it begins."
        )


def configure_connections(role: str, lease: float) -> None:
    """Set up every database of this process, before its first connection, for a long-lived process of ours.

    Connections stay open between jobs, dead peers are noticed within a lease, and the server's list of sessions shows
    the role. Otherwise what the project's OPTIONS say wins. A pool is left out: threads here keep one connection each.
    """
    connections.close_all()
    for alias in connections:
        settings = connections.settings[alias]
        options = dict(settings.get("OPTIONS") or {})
        vendor = connections[alias].vendor
        if vendor == "postgresql":
            options.pop("pool", None)
            options = {**_postgresql(lease), **options, "application_name": f"django_jobs:{role}"}
        elif vendor == "sqlite":
            options = {"timeout": SQLITE_WAIT, **options}
        settings["OPTIONS"] = options
        settings["CONN_MAX_AGE"] = None


def _postgresql(lease: float) -> dict[str, Any]:
    third = lease / 3
    return {
        "connect_timeout": max(2, int(connect_timeout(lease))),
        "keepalives": 1,
        "keepalives_idle": max(1, int(third)),
        "keepalives_interval": max(1, int(third / 3)),
        "keepalives_count": 3,
        "tcp_user_timeout": int(third * 1000),
    }


def of_listener(lease: float) -> dict[str, Any]:
    """Return what a supervisor's connection that listens has of ours; that it is dead must show without a statement."""
    return {**_postgresql(lease), "application_name": "django_jobs:listener"}


def connect_timeout(lease: float) -> float:
    """Return the seconds within which the database must let us in, and answer a probe."""
    return min(lease / 3, CONNECT_SECONDS)


def statement_timeout(lease: float) -> float:
    """Return the seconds after which the server gives up one of our own statements."""
    return min(lease / 3, STATEMENT_SECONDS)


def answer_timeout(lease: float) -> float:
    """Return the seconds after which we give up a server that does not answer one of our own statements."""
    return statement_timeout(lease) + ANSWER_SECONDS


def longest_wait(alias: str, lease: float) -> float:
    """Return the seconds that one of our own statements may take before it is given up."""
    if connections[alias].vendor == "sqlite":
        return float(connections.settings[alias]["OPTIONS"].get("timeout", SQLITE_WAIT))
    return answer_timeout(lease)


def still_works(alias: str, raw: Any) -> bool:
    """Tell whether this thread's connection is still this one, and usable: after a COMMIT that failed Django's is new."""
    connection = connections[alias]
    return connection.connection is raw and connection.is_usable()


def _remember(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    _seen(connection.alias).append(connection.connection)
    _wrappers()[connection.alias] = connection


connection_created.connect(_remember, dispatch_uid="django_jobs")


def opened() -> list[BaseDatabaseWrapper]:
    """Return Django's connections of this thread that are open. To ask Django for all of them costs 3 us, each time."""
    return [connection for connection in _wrappers().values() if connection.connection is not None]


def _wrappers() -> dict[str, BaseDatabaseWrapper]:
    found: dict[str, BaseDatabaseWrapper] | None = getattr(_opened, "wrappers", None)
    if found is None:
        found = _opened.wrappers = {one.alias: one for one in connections.all(initialized_only=True)}
    return found


def _seen(alias: str) -> deque[Any]:
    """Return the driver's connections that this thread has used lately."""
    found: deque[Any] | None = getattr(_threads, alias, None)
    if found is None:
        found = deque(maxlen=8)
        setattr(_threads, alias, found)
    return found


def of_this_thread() -> dict[str, deque[Any]]:
    """Return the driver's connections of this thread by alias; other threads may look into it."""
    return vars(_threads)


def discard_all() -> None:
    """Throw away every connection of this thread, whatever state it is in."""
    for connection in opened():
        discard(connection)


def watch(alias: str) -> None:
    """Begin to look out for connections that break."""
    seen = _seen(alias)
    seen.clear()
    wrapper = _wrappers().get(alias)
    seen.append(wrapper and wrapper.connection)


def broke(alias: str, errors: Iterable[BaseException]) -> bool:
    """Tell whether a connection of this thread to a database was cut since `watch`, as far as a run's errors show.

    Django's wrapper closes a connection that breaks inside `atomic()`, and makes another; the driver's own object
    still knows. Errors alone do not tell: they may come from another database.
    """
    cut = any(_is_cut(error) for error in errors)
    return any(getattr(raw, "broken", False) or (cut and getattr(raw, "closed", False)) for raw in _seen(alias))


def connect_failed(alias: str, errors: Iterable[BaseException]) -> bool:
    """Tell by where they were raised whether any of a run's errors is that a database could not be connected to."""
    return any(
        frame.f_code is _CONNECT and getattr(frame.f_locals.get("self"), "alias", None) == alias
        for error in errors
        if isinstance(error, OperationalError | InterfaceError | OSError)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def was_cut(error: BaseException) -> bool:
    """Tell whether Django raised an error because a session was ended."""
    return error.__cause__ is not None and _is_cut(error.__cause__)


def _is_cut(error: BaseException) -> bool:
    # A session that was ended by the server (57P0x), or by no word of it.
    state = getattr(error, "sqlstate", "")
    return state is None or state.startswith(("08", "57P0"))


def discard_open_transactions() -> list[str]:
    """Throw away every connection of this thread that was left in a transaction; return their aliases."""
    found = left_open()
    for alias in found:
        discard(connections[alias])
    return found


def left_open() -> list[str]:
    """Return the aliases of which this thread has a transaction open; that of a TestCase is not the handler's."""
    found = [connection.alias for connection in opened() if in_transaction(connection, of_test_case=False)]
    return sorted(found) if found else found


def discard(connection: BaseDatabaseWrapper) -> None:
    """Throw away a connection of this thread, whatever state it is in."""
    # Django's wrapper refuses to close inside an atomic block: both are thrown away.
    try:
        connection.connection.close()
    except Exception:
        pass
    del connections[connection.alias]
    _wrappers().pop(connection.alias, None)
