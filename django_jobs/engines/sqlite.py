from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from django.db.utils import DatabaseError

from django_jobs.engines.causes import EXPIRED, EXPIRED_ENTRY, LEASE_RAN_OUT
from django_jobs.engines.sqlite_claiming import SQLiteClaiming
from django_jobs.engines.sqlite_parts import LATER, NOW, is_busy
from django_jobs.engines.sqlite_settling import Before, settle_one, with_line
from django_jobs.engines.values import (
    Done,
    Expired,
    Run,
    Settlement,
)

_KEPT_KEY = "idempotency_key = CASE WHEN key_holds = 'window' THEN idempotency_key END"
LONGEST_LOOK = 0.5


class SQLiteEngine(SQLiteClaiming):
    """Portable statements, one row at a time, inside transactions that take the write lock at their start."""

    name = "sqlite"
    # One supervisor to a file, which knows whether its own children live.
    reaps_by_lease = False

    def describe(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def prepare(self, statement_timeout: float, role: str = "") -> None:
        connection = self.connection
        connection.ensure_connection()
        # A transaction that began by reading fails at its first write when anybody wrote meanwhile, without waiting.
        connection.transaction_mode = "IMMEDIATE"  # type: ignore[attr-defined]

    def complete(self, done: Sequence[Done]) -> dict[int, str]:
        written = {}
        with self._writing() as cursor:
            for item in sorted(done):
                cursor.execute(
                    "UPDATE django_jobs_job SET status = CASE WHEN cancel_reason IS NULL THEN 'done' ELSE 'cancelled' END, "
                    f"finished_at = {NOW}, locked_by = NULL, locked_until = NULL, losses = 0, suspect = 0, result = %s, "
                    f"{_KEPT_KEY} "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s RETURNING id, status",
                    [item.result, *item.run],
                )
                written.update(cursor.fetchall())
        return written

    def settle(self, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
        written: dict[int, str] = {}
        with self._writing() as cursor:
            for item in sorted(settlements, key=lambda item: item.run):
                cursor.execute(
                    "SELECT losses, suspect, history, cancel_reason IS NOT NULL FROM django_jobs_job "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s",
                    list(item.run),
                )
                row = cursor.fetchone()
                if row is not None:
                    written[item.run.id] = settle_one(cursor, item, Before(*row), max_uncounted)
        return written

    def ended_by(self, runs: Sequence[Run], waiting: bool = True) -> dict[int, str]:
        with self.connection.cursor() as cursor:
            return {
                run.id: status
                for run in runs
                for status, history in cursor.execute(
                    "SELECT status, history FROM django_jobs_job WHERE id = %s AND token = %s AND status <> 'running'",
                    [run.id, run.token],
                ).fetchall()
                if (causes := [line["cause"] for line in json.loads(history) if line["run"] == run.token])
                or status == "done"
                if LEASE_RAN_OUT not in causes
            }

    def extend(self, runs: Sequence[Run], lease: float) -> dict[int, bool]:
        extended: dict[int, bool] = {}
        with self._writing() as cursor:
            for run in sorted(runs):
                cursor.execute(
                    f"UPDATE django_jobs_job SET locked_until = {LATER.format('%s')} "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s "
                    # Not "cancel_reason IS NOT NULL": here SQLite 3.40 says true of a null.
                    "RETURNING id, cancel_reason",
                    [lease, *run],
                )
                extended.update((job_id, reason is not None) for job_id, reason in cursor.fetchall())
        return extended

    def renew(self, run: Run, lease: float) -> bool:
        return self.extend([run], lease).get(run.id) is False

    def store_progress(self, reports: Sequence[tuple[Run, str]]) -> None:
        with self._writing() as cursor:
            for run, report in reports:
                cursor.execute(
                    "UPDATE django_jobs_job SET progress = %s "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s",
                    [report, *run],
                )

    def expired(self, limit: int) -> list[Expired]:
        """Return all running jobs: called at a start only, when whoever ran them is known to be gone."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, token, locked_by, type, COALESCE((julianday('now') - julianday(last_started_at)) * 86400.0, 0) "
                "FROM django_jobs_job WHERE status = 'running' ORDER BY id LIMIT %s",
                [limit],
            )
            return [Expired(Run(*row[:3]), row[3], row[4]) for row in cursor.fetchall()]

    def cancel_expired(self, limit: int) -> int:
        with self._writing() as cursor:
            cursor.execute(
                "SELECT id, token, history FROM django_jobs_job WHERE status = 'ready' AND expires_at IS NOT NULL "
                f"AND expires_at <= {NOW} ORDER BY expires_at LIMIT %s",
                [limit],
            )
            rows = cursor.fetchall()
            for job_id, token, history in rows:
                lines = with_line(cursor, json.loads(history), {**json.loads(EXPIRED_ENTRY), "run": token})
                cursor.execute(
                    f"UPDATE django_jobs_job SET status = 'cancelled', parked = NULL, finished_at = {NOW}, {_KEPT_KEY}, "
                    "last_error = %s, history = %s WHERE id = %s",
                    [EXPIRED, json.dumps(lines), job_id],
                )
            return len(rows)

    def expired_exist(self) -> bool:
        return False

    def why_not_writable(self, timeout: float) -> str | None:
        # Whoever holds the file proves that it can be written.
        parameters = {**self.connection.get_connection_params(), "timeout": min(timeout, LONGEST_LOOK)}
        try:
            with closing(self.connection.get_new_connection(parameters)) as raw:
                # What does not fit in its cache is written before the end, so that a disk that is full shows.
                raw.execute("PRAGMA cache_size = 1")
                raw.execute("BEGIN IMMEDIATE")
                # Only a statement that could write is refused in a file that is read-only.
                raw.execute("CREATE TABLE django_jobs_trial (pages BLOB)")
                raw.execute("INSERT INTO django_jobs_trial VALUES (zeroblob(262144))")
                raw.execute("ROLLBACK")
        except (DatabaseError, sqlite3.Error) as error:
            return None if is_busy(error) else str(error)
        return None
