"""Statements that a session keeps parsed and planned.

Django keeps none, for behind a transaction pooler each statement may meet another session. Ours are kept where none is in
between, by sessions that send them again and again.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.engines.postgresql_session import is_pooled

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
        except psycopg.errors.InvalidSqlStatementName:
            # Somebody had the session forget it, as DISCARD ALL does. Nothing was done, so it can be asked again, unless a
            # transaction is over by that.
            _asked[connection] = None
            if connection.info.transaction_status != IDLE:
                raise
        finally:
            connection.prepare_threshold = before
        return super().execute(query, params, **options)


def cursor(connection: BaseDatabaseWrapper) -> Any:
    """Return Django's cursor, whose statements are prepared where that can be done and pays."""
    connection.ensure_connection()
    raw: Any = connection.connection
    # What is logged is to be seen with its values, which are not in a prepared statement.
    if connection.queries_logged or not _prepares(connection, raw):
        return connection.cursor()
    before, raw.cursor_factory = raw.cursor_factory, _Preparing
    try:
        return connection.cursor()
    finally:
        raw.cursor_factory = before


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
