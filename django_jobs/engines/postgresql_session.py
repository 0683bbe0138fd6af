"""What concerns a PostgreSQL session as such: setting it up, seeing a pooler, and trying whether it could write."""

from __future__ import annotations

import select
import time
from typing import Any

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper

INSUFFICIENT_PRIVILEGE = "42501"
# A new table always needs new pages, which other tables may have free in a disk that is full; so many that a page which
# somebody has just freed is not taken for room. It is where the jobs are, if we may make one there. In PostgreSQL 15
# this takes 4 ms.
_TRIAL = b"""
BEGIN;
SELECT current_setting('transaction_read_only');
SELECT set_config('temp_tablespaces', coalesce((
    SELECT quote_ident(spcname) FROM pg_class JOIN pg_tablespace space ON space.oid = reltablespace
     WHERE pg_class.oid = to_regclass('django_jobs_job') AND has_tablespace_privilege(space.oid, 'CREATE')), ''), true);
CREATE TEMPORARY TABLE django_jobs_trial ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 256);
ROLLBACK
"""


def set_up(connection: BaseDatabaseWrapper, timeout: int, role: str) -> None:
    """Set up a session for our own statements, each of which may take so many milliseconds.

    Behind a transaction pooler a session is the server's, and what we set would be had by whoever gets it next: there
    nothing is set, and what has to be is an attribute of the role (docs/operating.md).
    """
    raw: Any = connection.connection
    # Whatever the project's default: a claim under REPEATABLE READ fails whenever another worker was faster.
    raw.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    if is_pooled(connection):
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; "
            f"SET statement_timeout = {timeout}; SET lock_timeout = {timeout}; "
            f"SET idle_in_transaction_session_timeout = {timeout}; "
            # Without statistics, or old ones, claim_parked would gather and sort all that is parked: measured with
            # 200,000 parked jobs, 200,020 rows read for a claim of 20, and 40 with this.
            "SET enable_bitmapscan = off; "
            # A plan is kept for as long as the session, unless the table is analyzed: one made while it was small would
            # read all of it when it has grown. Every statement of ours has an index for what may be large.
            "SET enable_seqscan = off; SET jit = off; "
            # To plan anew for each batch takes as long as the batch, and finds the same.
            "SET plan_cache_mode = force_generic_plan"
        )
        if role:
            cursor.execute("SELECT set_config('application_name', %s, false)", [f"django_jobs:{role}"])


def is_pooled(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether a pooler is between us and the server: it makes up the process id that it tells its clients."""
    connection.ensure_connection()
    raw: Any = connection.connection
    # By the driver's cursor: it is no statement of the project's, nor to be counted as one.
    with connection.wrap_database_errors, raw.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return bool(cursor.fetchone()[0] != raw.pgconn.backend_pid)


def why_not_writable(parameters: dict[str, Any], timeout: float) -> str | None:
    """Return why a new session cannot be had or could not write, in the server's words if it said any; None if it could."""
    for name in ("pool", "cursor_factory", "context"):
        parameters.pop(name, None)
    parameters["connect_timeout"] = max(2, int(timeout))
    try:
        raw = psycopg.connect(**parameters, autocommit=True)
    except (psycopg.Error, OSError) as error:
        return _in_a_line(str(error))
    try:
        return _tried(raw.pgconn, time.monotonic() + max(timeout, 1.0))
    except (psycopg.Error, OSError) as error:
        return _in_a_line(str(error))
    finally:
        raw.close()


def _tried(pgconn: psycopg.pq.abc.PGconn, until: float) -> str | None:
    """Try without psycopg's own waiting, which has no limit: who lets us in may not answer."""
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    pgconn.send_query(_TRIAL)
    pgconn.flush()
    while True:
        while pgconn.is_busy():
            if not poll.poll(max(until - time.monotonic(), 0.0) * 1000):
                return "it gave no answer in time"
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            return None
        if result.error_message:
            state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
            # Temporary tables are not allowed to us: what we do not try we take to be possible.
            return None if state == INSUFFICIENT_PRIVILEGE else _said(result)
        if result.ntuples and result.get_value(0, 0) == b"on":
            return "it is read-only (transaction_read_only is on)"


def _said(result: psycopg.pq.abc.PGresult) -> str:
    primary = result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return _in_a_line(primary.decode(errors="replace"))


def _in_a_line(text: str) -> str:
    return " ".join(text.split())
