"""Statements that a session keeps parsed and planned.

Django keeps none, for behind a transaction pooler each statement may meet another session. Ours are kept where none is in
between, by sessions that send them again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.engines import postgresql_direct as direct
from django_jobs.engines.postgresql_session import is_pooled
from django_jobs.engines.sql import statement
from django_jobs.engines.values import Word

IDLE = psycopg.pq.TransactionStatus.IDLE

# To prepare a statement costs a round trip, which a connection that is closed with its request would not earn back.
AFTER = 5
# How often a session was asked for a cursor; None: it is to prepare nothing.
_asked: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


class _Preparing(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        connection = self.connection
        before, connection.prepare_threshold = connection.prepare_threshold, AFTER
        try:
            return super().execute(query, params, **{**options, "prepare": True})
        except psycopg.errors.InvalidSqlStatementName as error:
            _forgotten(connection, error)
        finally:
            connection.prepare_threshold = before
        return super().execute(query, params, **options)


def _forgotten(raw: Any, error: Exception) -> None:
    """Somebody had the session forget a statement, as DISCARD ALL does. Nothing was done, so it can be asked again, unless a
    transaction is over by that."""
    _asked[raw] = None
    if raw.info.transaction_status != IDLE:
        raise error


def rows(connection: BaseDatabaseWrapper, name: str, parameters: dict[str, Any]) -> list[Any]:
    """Execute a statement, prepared where that can be done and pays, and return its rows."""
    return _rows(connection, name, parameters, _keeps(connection))


def row_of(
    connection: BaseDatabaseWrapper,
    name: str,
    parameters: Callable[[], dict[str, Any]],
    texts: direct.Texts,
    meanwhile: Callable[[], object],
    word: Word | None = None,
) -> Sequence[Any]:
    """Execute a small statement, of which the cursors would take most of the time, and return its only row.

    Its values may come as texts, as the parameters are given, too. `meanwhile` is done while it is under way, or not at all.
    """
    keeps = _keeps(connection)
    if keeps and direct.is_open(connection):
        try:
            found = direct.prepared(connection, name, texts, meanwhile, word)
        except DatabaseError as error:
            if not isinstance(error.__cause__, psycopg.errors.InvalidSqlStatementName):
                raise
            _forgotten(connection.connection, error)
            found, keeps = None, False
        if found is not None:
            return found[0]
    (row,) = _rows(connection, name, parameters(), keeps)
    return row  # type: ignore[no-any-return]


def begin(connection: BaseDatabaseWrapper, name: str, parameters: dict[str, Any]) -> Callable[[], Sequence[Any]]:
    """Send a large statement; return what waits for its rows, whose values may come as texts.

    Nothing else can be done with the connection until then. Where that is not possible it is executed at once.
    """
    keeps = _keeps(connection)
    if direct.is_open(connection):
        return direct.begin(connection, name, parameters, keeps)
    found = _rows(connection, name, parameters, keeps)
    return lambda: found


def _rows(connection: BaseDatabaseWrapper, name: str, parameters: dict[str, Any], keeps: bool) -> list[Any]:
    with _cursor(connection) if keeps else connection.cursor() as cursor:
        cursor.execute(statement(name), parameters)
        return list(cursor.fetchall())


def _cursor(connection: BaseDatabaseWrapper) -> Any:
    """Return Django's cursor, whose statements are prepared."""
    raw: Any = connection.connection
    before, raw.cursor_factory = raw.cursor_factory, _Preparing
    try:
        return connection.cursor()
    finally:
        raw.cursor_factory = before


def _keeps(connection: BaseDatabaseWrapper) -> bool:
    connection.ensure_connection()
    # What is logged is to be seen with its values, which are not in a prepared statement.
    return not connection.queries_logged and _prepares(connection, connection.connection)


def _prepares(connection: BaseDatabaseWrapper, raw: Any) -> bool:
    asked = _asked.get(raw, 0)
    if asked is None or asked > AFTER:
        return asked is not None
    _asked[raw] = asked + 1
    if asked == AFTER and (_is_unwanted(connection) or is_pooled(connection)):
        _asked[raw] = None
    return asked == AFTER and _asked[raw] is not None


def _is_unwanted(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the project has turned prepared statements off, or has a pool that may forget them."""
    options: dict[str, Any] = connection.settings_dict["OPTIONS"]
    pool = options.get("pool")
    return options.get("prepare_threshold", AFTER) is None or (isinstance(pool, dict) and "reset" in pool)
