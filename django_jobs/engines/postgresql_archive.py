"""The archive on PostgreSQL: a partition for each day on which jobs were archived, made by the first and dropped whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from django.db import DatabaseError, transaction
from psycopg import sql

from django_jobs.engines.archive import Ages, Archive, Forbidden, InUse, Moved, Part
from django_jobs.engines.base import DATABASE_ERRORS
from django_jobs.engines.postgresql_session import is_pooled
from django_jobs.engines.sql import statement

# Advisory locks of the database: who is at the archive, and who makes a partition.
WORKING, MAKING = 1, 2
_LOCKS = 0x646A6F62
# How long a lock is waited for. Whoever comes behind us waits no longer for us, and our thread can be ended after that.
LOCK_TIMEOUT = "1s"

# Where the archive is, today, and tomorrow, in UTC.
_TODAY = """
SELECT nspname, relname, to_char(today, 'YYYY-MM-DD'), to_char(today + interval '1 day', 'YYYY-MM-DD')
  FROM pg_class
  JOIN pg_namespace space ON space.oid = relnamespace
 CROSS JOIN date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') today
 WHERE pg_class.oid = 'django_jobs_archivedjob'::regclass
"""


class PostgreSQLArchive(Archive):
    most = 500
    by_partitions = True

    @contextmanager
    def turn(self) -> Iterator[bool]:
        # Behind a pooler the lock would be the server session's, and stay with it. Two at once do no harm.
        if is_pooled(self.engine.connection):
            yield True
            return
        mine = self._asked("SELECT pg_try_advisory_lock(%s, %s)", [_LOCKS, WORKING])[0][0]
        try:
            yield mine
        finally:
            if mine:
                self._unlock()

    def _unlock(self) -> None:
        try:
            self._asked("SELECT pg_advisory_unlock(%s, %s)", [_LOCKS, WORKING])
        except DATABASE_ERRORS:
            self.engine.connection.close()  # the lock ends with the session

    def prepare(self) -> None:
        with self._allowed(), self._bounded():
            if self._covered():
                return
            self._run("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCKS, MAKING])
            if not self._covered():
                self._make_partition()

    def may_prepare(self) -> bool:
        found = self._asked(
            "SELECT has_schema_privilege(relnamespace, 'CREATE') AND pg_has_role(relowner, 'USAGE') FROM pg_class "
            "WHERE pg_class.oid = to_regclass('django_jobs_archivedjob')"
        )
        return bool(not found or found[0][0])

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Open a transaction that waits for no lock for long."""
        with transaction.atomic(using=self.alias):
            self._run("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            yield

    @contextmanager
    def _allowed(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise Forbidden(str(error).strip().split("\n")[0]) from error
            raise

    def _covered(self) -> bool:
        return bool(
            self._asked(
                statement("archive_partitions") + " WHERE since <= clock_timestamp() AND until > clock_timestamp()"
            )
        )

    def _make_partition(self) -> None:
        # Attached, and not made as a partition: that would lock out whoever reads the archive. There are no rows to check.
        ((schema, table, start, end),) = self._asked(_TODAY)
        parent, partition = sql.Identifier(schema, table), sql.Identifier(schema, f"{table}_{start.replace('-', '')}")
        self._run(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(partition, parent))
        self._run(
            sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                parent, partition, sql.Literal(f"{start} 00:00+00"), sql.Literal(f"{end} 00:00+00")
            )
        )

    def move(self, part: Part, ages: Ages, keep: bool) -> Moved:
        given = {"done": ages.done, "dead": ages.dead, "keyed": ages.keyed, "keep": keep, **part._asdict()}
        with self._bounded():
            number, last, young = self._asked(statement("archive"), given)[0]
        return Moved(number, last, bool(young))

    def forgettable(self, age: timedelta) -> list[str]:
        over = " WHERE until < clock_timestamp() - %s ORDER BY until"
        return [row[0] for row in self._asked(statement("archive_partitions") + over, [age])]

    def drop(self, partition: str) -> None:
        with self._allowed(), self._bounded():
            self._lock(partition)
            self._run(f"DROP TABLE {partition}")

    def _lock(self, partition: str) -> None:
        # Not waited for: behind whoever waits for such a lock all others have to wait as well.
        mode = "ACCESS EXCLUSIVE MODE NOWAIT"
        try:
            self._run(f"LOCK TABLE ONLY django_jobs_archivedjob, ONLY {partition} IN {mode}")
        except DatabaseError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise InUse("somebody has the archive open") from error
            raise

    def delete(self, age: timedelta, limit: int) -> int:
        with self.engine.connection.cursor() as cursor:
            # Twice, so that neither the search nor the deletion reads days that are not old.
            old = "archived_at < statement_timestamp() - %s"
            given: list[Any] = [age, age, limit]
            cursor.execute(
                f"DELETE FROM django_jobs_archivedjob WHERE {old} AND (id, archived_at) IN ("
                f"SELECT id, archived_at FROM django_jobs_archivedjob WHERE {old} LIMIT %s)",
                given,
            )
            return int(cursor.rowcount)

    def _run(self, query: Any, parameters: Any = None) -> None:
        with self.engine.connection.cursor() as cursor:
            cursor.execute(query, parameters)

    def _asked(self, query: str, parameters: Any = None) -> list[Any]:
        with self.engine.connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall())
