"""Moving the clock of the jobs' database, for the connection of a test: all statements of it are told a later time.

No row is changed. On PostgreSQL functions by the names of the server's own are found before those; on SQLite they take their
place. So whatever asks the database for the time agrees: claims, delays, retries, schedules, and the project's `Now()`.
"""

from __future__ import annotations

import atexit
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.backends.signals import connection_created

from django_jobs.context import current
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, InvalidJobType, JobsError, shown
from django_jobs.models.clock import database_now
from django_jobs.testing.guard import refuse_outside_of_tests
from django_jobs.testing.transactions import innermost, refuse_open_transaction

SCHEMA = "django_jobs_clock"
_OF_POSTGRESQL = (("clock_timestamp", "VOLATILE"), *((name, "STABLE") for name in ("statement_timestamp", "now")))
# What SQLite's functions take before the time of which they tell.
_OF_SQLITE = {"strftime": 1, "julianday": 0, "datetime": 0, "date": 0, "time": 0, "unixepoch": 0}


class _Moved(NamedTuple):
    """By how much in all, for as long as a block of a TestCase is open; None outside of any."""

    block: transaction.Atomic | None
    seconds: float


_moves: dict[str, list[_Moved]] = {}


def advance(by: timedelta) -> datetime:
    """Move the clock of the jobs' database on, as this test's connection sees it; return the time that it then shows.

    Jobs and schedules become due by it, and `Now()` of the project's own queries tells it as well. `timezone.now()`, which
    is Python's, stays. It goes back at the end of a TestCase by itself, else by `reset_clock`. Raises JobsError inside
    `transaction.atomic()` and in a job, InvalidJob and InvalidJobType for what is no timedelta of at least 0.
    """
    if not isinstance(by, timedelta):
        raise InvalidJobType(f"advance({shown(by)}): give a timedelta.")
    if by < timedelta(0):
        raise InvalidJob(
            f"advance({shown(by)}): give a timedelta of at least 0; the database's clock does not go back."
        )
    if current.get() is not None:
        raise JobsError("advance() was called in a job; it moves the clock of a test, between runs.")
    alias = jobs_alias()
    refuse_outside_of_tests(alias, "advance()")
    refuse_open_transaction(alias, "advance()")
    _move(alias, moved_by(alias) + by.total_seconds())
    return database_now(alias)


def reset_clock() -> None:
    """Have the clock of the jobs' database show its own time again, for a test that is no TestCase."""
    for alias in list(_moves):
        connection = connections[alias]
        if connection.in_atomic_block:
            _move(alias, 0.0)
            continue
        del _moves[alias]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; RESET search_path")


def moved_by(alias: str) -> float:
    """Return by how many seconds the clock was moved, and is to be: what a transaction that ended had of it is over."""
    moves = _moves.get(alias, [])
    while moves and moves[-1].block is not None and moves[-1].block not in connections[alias].atomic_blocks:
        moves.pop()
    return moves[-1].seconds if moves else 0.0


def _move(alias: str, seconds: float) -> None:
    connection = connections[alias]
    block = innermost(connection)
    moves = _moves.setdefault(alias, [])
    if moves and moves[-1].block is block:
        moves.pop()
    moves.append(_Moved(block, seconds))
    _set(connection)


def _set(connection: Any) -> None:
    if connection.vendor == "postgresql":
        _set_postgresql(connection)
    else:
        _set_sqlite(connection)


def _set_postgresql(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regnamespace(%s) IS NULL", [SCHEMA])
        if cursor.fetchone()[0]:
            cursor.execute(f"CREATE SCHEMA {SCHEMA}")
            for name, kind in _OF_POSTGRESQL:
                cursor.execute(
                    f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS timestamptz LANGUAGE sql {kind} AS $$ SELECT "
                    f"pg_catalog.{name}() + pg_catalog.current_setting('{SCHEMA}.moved_by')::pg_catalog.interval $$"
                )
        cursor.execute(
            "SELECT set_config(%s, %s, false), CASE WHEN strpos(current_setting('search_path'), %s) = 0 "
            "THEN set_config('search_path', concat(%s::text, ', pg_catalog, ', current_setting('search_path')), false) END",
            [f"{SCHEMA}.moved_by", f"{moved_by(connection.alias):.3f} seconds", SCHEMA, SCHEMA],
        )


def _set_sqlite(connection: Any) -> None:
    connection.ensure_connection()
    # They stay, as SQLite does not bring its own back, and add nothing when the clock was set back.
    for name, place in _OF_SQLITE.items():
        connection.connection.create_function(name, -1, _of_sqlite(connection.alias, name, place), deterministic=True)


@cache
def _other() -> sqlite3.Connection:
    """Return a connection that is asked in their stead: what was put in the place of a function of SQLite cannot call it."""
    found = sqlite3.connect(":memory:", check_same_thread=False)
    atexit.register(found.close)
    return found


def _of_sqlite(alias: str, name: str, place: int) -> Callable[..., Any]:
    def function(*given: Any) -> Any:
        arguments = list(given)
        if len(arguments) == place:
            arguments.append("now")
        if len(arguments) > place and str(arguments[place]).lower() == "now":
            arguments.insert(place + 1, f"+{moved_by(alias):.3f} seconds")
        return _other().execute(f"SELECT {name}({', '.join('?' * len(arguments))})", arguments).fetchone()[0]

    return function


def _again(connection: Any, **kwargs: Any) -> None:
    # A job that failed has its connections closed, where no TestCase has a transaction open.
    if moved_by(connection.alias):
        _set(connection)


connection_created.connect(_again, dispatch_uid="django_jobs.testing.clock")
