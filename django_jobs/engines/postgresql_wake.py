"""NOTIFY and LISTEN: how PostgreSQL says from one process to others that jobs have come.

The channel is that of the table of jobs: schemas of one database do not wake each other's workers.
"""

from __future__ import annotations

import select
import time
from typing import Any

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from django_jobs.engines.postgresql_session import _said

# Milliseconds for which a NOTIFY waits at its commit for those of others: they have one lock in the whole cluster, and
# some hold it until their commit is on a disk, or on another host.
LOCK_MILLISECONDS = 50
SEND_SECONDS = 2.0
_CHANNEL = "'django_jobs:' || 'django_jobs_job'::regclass::oid"
# One statement, and so one transaction: a wake-up that a crash takes away costs one poll, and is not worth an fsync.
NOTIFY = (
    "SELECT set_config('synchronous_commit', 'off', true), "
    f"set_config('lock_timeout', '{LOCK_MILLISECONDS}', true), pg_notify({_CHANNEL}, $1)"
).encode()


def channel(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_CHANNEL}")
        return str(cursor.fetchone()[0])


def send(connection: BaseDatabaseWrapper, payload: str) -> None:
    """Send a NOTIFY in a transaction of its own; nothing when this connection has one open."""
    raw: Any = connection.connection
    # Past Django's wrappers: neither logged nor counted as a query of the project's.
    pgconn = None if raw is None else raw.pgconn
    if pgconn is None or pgconn.transaction_status != TransactionStatus.IDLE:
        return
    if pgconn.pipeline_status == PipelineStatus.OFF:
        with raw.lock:
            ask(raw, NOTIFY, [payload.encode()], SEND_SECONDS)


def ask(raw: Any, command: bytes, values: list[bytes | None], seconds: float) -> None:
    """Execute without psycopg's own waiting, which has no limit; close the connection when no answer comes in time."""
    pgconn, until = raw.pgconn, time.monotonic() + seconds
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    pgconn.send_query_params(command, values)
    pgconn.flush()
    error = ""
    while True:
        while pgconn.is_busy():
            if not poll.poll(max(until - time.monotonic(), 0.0) * 1000):
                raw.close()
                raise psycopg.OperationalError(f"no answer came within {seconds:g} s")
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            break
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            error = error or _said(result)
    if error:
        raise psycopg.OperationalError(error)


def parameters(given: dict[str, Any], dsn: str | None) -> dict[str, Any]:
    """Return with what to connect: what is `given` for the jobs' connections, or what a connection string says."""
    if dsn is not None:
        return conninfo_to_dict(dsn)
    return {name: value for name, value in given.items() if name not in ("pool", "cursor_factory", "context")}


class Ear:
    """A connection that listens."""

    def __init__(self, parameters: dict[str, Any], channel: str, timeout: float) -> None:
        self._raw = psycopg.connect(**{**parameters, "autocommit": True})
        try:
            ask(self._raw, f'LISTEN "{channel}"'.encode(), [], timeout)
        except BaseException:
            self._raw.close()
            raise

    def fileno(self) -> int:
        return self._raw.fileno()

    def heard(self) -> list[str]:
        """Return the payloads that have come, without waiting; raise psycopg.OperationalError when the connection broke."""
        pgconn = self._raw.pgconn
        pgconn.consume_input()
        found = []
        while (notify := pgconn.notifies()) is not None:
            found.append(notify.extra.decode(errors="replace"))
        return found

    def close(self) -> None:
        self._raw.close()
