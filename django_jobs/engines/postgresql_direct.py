"""Statements that are sent past the cursors of Django and psycopg, which take more time than a small statement itself.

Measured for one INSERT (PostgreSQL 15, over the loopback): of the client's processor 20 us, 75 by psycopg's cursor, and 130
by Django's around it. Who watches statements, or changes them, does so in the cursors: where somebody does, or where anything
about the connection is unusual, nothing is sent from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import django
import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql import base as postgresql
from django.db.backends.utils import CursorWrapper
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from django_jobs.engines.postgresql_wake import NOTIFY
from django_jobs.engines.sql import numbered
from django_jobs.engines.values import Word, as_text

Rows = list[tuple[bytes | None, ...]]
# Values by the names of parameters, as the server reads them whatever it wants there. A NUL is in none of them.
Texts = Mapping[str, bytes | None]

IDLE, INTRANS = TransactionStatus.IDLE, TransactionStatus.INTRANS
_DJANGO = os.path.dirname(django.__file__)
_PSYCOPG = os.path.dirname(psycopg.__file__)
_CURSORS: tuple[Any, ...] = (postgresql.Cursor, postgresql.ServerBindingCursor)
_numbers = count()


def is_open(connection: Any) -> bool:
    """Tell whether a statement may be sent now from here: it begins no transaction, and nobody is there to see it."""
    raw: Any = connection.connection
    if connection.execute_wrappers or connection.queries_logged or connection.needs_rollback:
        return False
    if connection.health_check_enabled and not connection.health_check_done:
        return False
    pgconn = raw.pgconn
    status = pgconn.transaction_status
    return (
        (status == INTRANS or (status == IDLE and raw.autocommit))
        and pgconn.pipeline_status == PipelineStatus.OFF
        and pgconn.parameter_status(b"client_encoding") == b"UTF8"
        and _is_unwatched(connection, raw)
    )


def _is_unwatched(connection: Any, raw: Any) -> bool:
    kind = type(connection)
    return (
        type(raw) is psycopg.Connection
        and raw.cursor_factory in _CURSORS
        and "cursor" not in connection.__dict__
        and _are_as_made(
            kind.cursor,
            kind._cursor,
            kind.create_cursor,
            kind.make_cursor,
            CursorWrapper.execute,
            psycopg.Cursor.execute,
            psycopg.ClientCursor.execute,
        )
    )


@lru_cache(maxsize=100)
def _are_as_made(*functions: Any) -> bool:
    """Tell whether these are Django's and psycopg's own, and not what a tool has put in their place."""
    files = [getattr(getattr(function, "__code__", None), "co_filename", "") for function in functions]
    return all(file.startswith((_DJANGO, _PSYCOPG)) for file in files)


def prepared(
    connection: BaseDatabaseWrapper,
    name: str,
    texts: Texts,
    meanwhile: Callable[[], object],
    word: Word | None = None,
) -> Rows | None:
    """Execute a statement that the session keeps, or keeps from now on; None, and nothing was done, if it cannot be kept.

    A word is sent behind it without waiting for its answer, if it is a transaction of its own.
    """
    connection.validate_thread_sharing()
    raw: Any = connection.connection
    sql, names = numbered(name)
    with connection.wrap_database_errors, raw.lock:
        known = _known(raw, sql)
        if known is None:
            return None
        values = [texts[name] for name in names]
        if word is not None and raw.pgconn.transaction_status == IDLE:
            return _followed(raw, known, values, meanwhile, word)
        raw.pgconn.send_query_prepared(known, values)
        try:
            meanwhile()
        finally:
            rows = _answer(raw)
        return rows


def _followed(raw: Any, known: bytes, values: list[bytes | None], meanwhile: Callable[[], object], word: Word) -> Rows:
    """Execute a kept statement and send a NOTIFY in one go, each in a transaction of its own."""
    pgconn = raw.pgconn
    pgconn.enter_pipeline_mode()
    try:
        pgconn.send_query_prepared(known, values)
        pgconn.pipeline_sync()
        pgconn.send_query_params(NOTIFY, [word.queue.encode()])
        pgconn.pipeline_sync()
        pgconn.flush()
        word.sent = True
        try:
            meanwhile()
        finally:
            stored, told = raw.wait(_both(pgconn))
    finally:
        _leave_pipeline(raw)
    if told.status == ExecStatus.FATAL_ERROR:
        word.error = psycopg.errors.error_from_result(told)
    return _rows(stored)


def _leave_pipeline(raw: Any) -> None:
    try:
        raw.pgconn.exit_pipeline_mode()
    except psycopg.Error:
        raw.close()  # it broke, or the wait was interrupted: nobody could say what its next answer belongs to


def _both(pgconn: Any) -> Generator[Any, Any, list[Any]]:
    yield from send(pgconn)
    found = []
    for _ in range(2):
        found += yield from fetch_many(pgconn)
        yield from fetch_many(pgconn)  # where its transaction ended
    return found


def _known(raw: Any, sql: bytes) -> bytes | None:
    """Return by what name the session knows a statement.

    psycopg has its sessions forget all that they keep after a rollback, and keeps a book of that: in it ours stand, too.
    """
    manager = getattr(raw, "_prepared", None)
    book, waiting = getattr(manager, "_names", None), getattr(manager, "_to_flush", True)
    if not isinstance(book, dict) or waiting:
        return None
    name: bytes | None = book.get((sql, ()))
    if name is None:
        name = b"django_jobs_%d" % next(_numbers)
        raw.pgconn.send_prepare(name, sql)
        _answer(raw)
        book[sql, ()] = name
    return name


def begin(connection: BaseDatabaseWrapper, name: str, parameters: Mapping[str, Any], keep: bool) -> Callable[[], Rows]:
    """Send a statement, one that the session is to `keep` or not; return what waits for its rows.

    Nothing else can be done with the connection until then.
    """
    connection.validate_thread_sharing()
    raw: Any = connection.connection
    sql, names = numbered(name)
    values = [as_text(parameters[name]) for name in names]

    def wait() -> Rows:
        try:
            with connection.wrap_database_errors:
                return _answer(raw)
        finally:
            raw.lock.release()

    raw.lock.acquire()
    try:
        with connection.wrap_database_errors:
            known = _known(raw, sql) if keep else None
            if known is None:
                raw.pgconn.send_query_params(sql, values)
            else:
                raw.pgconn.send_query_prepared(known, values)
            raw.pgconn.flush()
    except BaseException:
        raw.lock.release()
        raise
    return wait


def _answer(raw: Any) -> Rows:
    # Mostly all is sent by now; to be told so first would take another look at the socket.
    unsent = raw.pgconn.flush()
    (result,) = raw.wait((execute if unsent else fetch_many)(raw.pgconn))
    return _rows(result)


def _rows(result: Any) -> Rows:
    if result.status == ExecStatus.TUPLES_OK:
        columns, value = range(result.nfields), result.get_value
        return [tuple([value(row, column) for column in columns]) for row in range(result.ntuples)]
    if result.status != ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result)
    return []
