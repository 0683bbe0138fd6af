"""What PostgreSQL does for atomic runs. All settings are those of the transaction, so a transaction pooler may be between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from django_jobs.engines.base import milliseconds
from django_jobs.engines.postgresql_storing import PostgreSQLStoring

# By when it began a transaction is known from those after it.
_BEGAN = "extract(epoch FROM transaction_timestamp())::text"
# Seconds, in words that intervals know as well: of the project's own time-out, 0 when there is none.
_OWN = "extract(epoch FROM replace(current_setting('statement_timeout'), 'ms', 'milliseconds')::interval) * 1000"


class PostgreSQLAtomic(PostgreSQLStoring):
    long_atomic = 60.0
    long_atomic_cost = "its transaction keeps the database from removing old row versions"

    @contextmanager
    def for_atomic_run(self) -> Iterator[None]:
        self.connection.ensure_connection()
        raw: Any = self.connection.connection
        before = raw.isolation_level
        # Under any other the completion would fail whenever a heartbeat came after the first statement.
        raw.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            yield
        finally:
            with suppress(psycopg.Error):  # closed, or still in a transaction: it is thrown away
                raw.isolation_level = before

    def mark(self, idle: float, limit: float | None) -> str:
        sql = f"SELECT {_BEGAN}, set_config('idle_in_transaction_session_timeout', %s, true)"
        parameters = [str(milliseconds(idle))]
        if limit is not None:
            sql += f", set_config('statement_timeout', least(nullif({_OWN}, 0), %s)::bigint::text, true)"
            parameters.append(str(milliseconds(limit)))
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return str(cursor.fetchone()[0])

    def was_ended(self, mark: str) -> bool:
        raw: Any = self.connection.connection
        if raw.pgconn.transaction_status != TransactionStatus.INTRANS:
            # In a failed one nothing can be asked.
            return bool(raw.pgconn.transaction_status == TransactionStatus.IDLE)
        # Django lets nothing through in a block that is to be rolled back.
        with self.connection.wrap_database_errors, raw.cursor() as cursor:
            cursor.execute(f"SELECT {_BEGAN}")
            return bool(cursor.fetchone()[0] != mark)

    def broken_by(self) -> str | None:
        raw: Any = self.connection.connection
        status = raw.pgconn.transaction_status
        if status == TransactionStatus.INERROR:
            return "caught an error of the database, after which PostgreSQL takes nothing more in the transaction"
        return None if status == TransactionStatus.INTRANS else "ended the transaction by a COMMIT or ROLLBACK"

    def check_deferred(self) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def is_marked(self, mark: str, limit: float) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {_BEGAN} = %(mark)s, set_config('lock_timeout', %(limit)s, true), "
                "set_config('statement_timeout', %(limit)s, true)",
                {"mark": mark, "limit": str(milliseconds(limit))},
            )
            return bool(cursor.fetchone()[0])
