from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from django.db import OperationalError, transaction
from django.db.utils import DatabaseError

from django_jobs.conf import conf
from django_jobs.engines.base import (
    Claimed,
    ClaimOrder,
    ClaimResult,
    Done,
    Engine,
    Expired,
    Look,
    NewJob,
    Run,
    Settlement,
    died_before,
    ended,
    milliseconds,
)
from django_jobs.engines.sqlite_parts import LATER, NOW, UNLESS_TAKEN, one_of, read, served, stored
from django_jobs.exceptions import EnqueueTimeout
from django_jobs.models import Job

HISTORY_LIMIT = 10
_CLAIMED = "id, token, type, payload, attempts, max_attempts, idempotency_key, timeout, slot"


class SQLiteEngine(Engine):
    """Portable statements, one row at a time, inside transactions that take the write lock at their start."""

    name = "sqlite"
    # One supervisor to a file, which knows whether its own children live.
    reaps_by_lease = False

    def describe(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def prepare(self, statement_timeout: float) -> None:
        connection = self.connection
        connection.ensure_connection()
        # A transaction that began by reading fails at its first write when anybody wrote meanwhile, without waiting.
        connection.transaction_mode = "IMMEDIATE"  # type: ignore[attr-defined]

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        connection = self.connection
        connection.ensure_connection()
        mode = connection.transaction_mode  # type: ignore[attr-defined]
        connection.transaction_mode = "IMMEDIATE"  # type: ignore[attr-defined]
        try:
            with transaction.atomic(using=self.alias), connection.cursor() as cursor:
                yield cursor
        finally:
            connection.transaction_mode = mode  # type: ignore[attr-defined]

    def insert(self, new: NewJob) -> Job:
        return self._inserted(new, "")[0]

    def insert_keyed(self, new: NewJob, key: str) -> Job | None:
        seconds = conf().enqueue_timeout
        try:
            with self._busy_timeout(seconds):
                found = self._inserted(new, UNLESS_TAKEN)
        except OperationalError as error:
            # Not SQLITE_BUSY_SNAPSHOT: a transaction that has read an older state gets it at once, without waiting.
            if getattr(error.__cause__, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise EnqueueTimeout(key, seconds) from error
            raise
        return found[0] if found else None

    @contextmanager
    def _busy_timeout(self, seconds: float) -> Iterator[None]:
        with self.connection.cursor() as cursor:
            before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds(seconds)}")
            try:
                yield
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {before}")

    def _inserted(self, new: NewJob, conflict: str) -> list[Job]:
        sql = (
            "INSERT INTO django_jobs_job "
            "(type, queue, priority, payload, idempotency_key, run_at, max_attempts, timeout) VALUES "
            f"(%(type)s, %(queue)s, %(priority)s, %(payload)s, %(idempotency_key)s, "
            f"COALESCE(%(run_at)s, {LATER.format('%(delay)s')}), %(max_attempts)s, %(timeout)s) {conflict} RETURNING *"
        )
        parameters = {**asdict(new), "run_at": None if new.run_at is None else stored(new.run_at)}
        return list(Job.objects.using(self.alias).raw(sql, parameters))

    def claim(self, order: ClaimOrder) -> ClaimResult:
        where, parameters = served(order.queues)
        with self._writing() as cursor:
            cursor.execute(
                f"SELECT {_CLAIMED} FROM django_jobs_job WHERE status = 'ready' AND parked IS NULL "
                f"AND run_at <= {NOW} {where} ORDER BY priority DESC, run_at, id LIMIT %s",
                [*parameters, order.limit],
            )
            rows = cursor.fetchall()
            known = [row for row in rows if row[2] in order.types]
            unknown = [(row[0],) for row in rows if row[2] not in order.types]
            if unknown:
                cursor.executemany("UPDATE django_jobs_job SET parked = 'type' WHERE id = %s", unknown)
            return ClaimResult(_take(cursor, order, known), len(unknown))

    def claim_parked(self, order: ClaimOrder) -> ClaimResult:
        where, parameters = served(order.queues)
        known, types = one_of("type", order.types)
        with self._writing() as cursor:
            cursor.execute(
                f"SELECT {_CLAIMED} FROM django_jobs_job WHERE parked IS NOT NULL AND parked = 'type' "
                f"AND status = 'ready' AND run_at <= {NOW} AND {known} {where} "
                "ORDER BY priority DESC, run_at, id LIMIT %s",
                [*types, *parameters, order.limit],
            )
            return ClaimResult(_take(cursor, order, cursor.fetchall()), 0)

    def look(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Look:
        where, parameters = served(queues)
        known, type_parameters = one_of("type", types)
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT max(0, (julianday(min(run_at)) - julianday('now')) * 86400.0) FROM django_jobs_job "
                f"WHERE status = 'ready' AND parked IS NULL {where}",
                parameters,
            )
            due_in = cursor.fetchone()[0]
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM django_jobs_job WHERE parked IS NOT NULL AND parked = 'type' "
                f"AND status = 'ready' AND run_at <= {NOW} AND {known} {where})",
                [*type_parameters, *parameters],
            )
            return Look(due_in, bool(cursor.fetchone()[0]))

    def complete(self, done: Sequence[Done]) -> set[int]:
        written = set()
        with self._writing() as cursor:
            for item in sorted(done):
                cursor.execute(
                    f"UPDATE django_jobs_job SET status = 'done', finished_at = {NOW}, locked_by = NULL, "
                    "locked_until = NULL, losses = 0, result = %s "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s",
                    [item.result, *item.run],
                )
                if cursor.rowcount:
                    written.add(item.run.id)
        return written

    def settle(self, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
        written: dict[int, str] = {}
        with self._writing() as cursor:
            for item in sorted(settlements, key=lambda item: item.run):
                cursor.execute(
                    "SELECT losses, history FROM django_jobs_job "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s",
                    list(item.run),
                )
                row = cursor.fetchone()
                if row is not None:
                    written[item.run.id] = _settle_one(cursor, item, row[0], json.loads(row[1]), max_uncounted)
        return written

    def ended_by(self, runs: Sequence[Run]) -> set[int]:
        with self.connection.cursor() as cursor:
            return {
                run.id
                for run in runs
                for found in cursor.execute(
                    "SELECT token, status, json_extract(history, '$[#-1].run'), json_extract(history, '$[#-1].cause') "
                    "FROM django_jobs_job WHERE id = %s AND token = %s",
                    [run.id, run.token],
                ).fetchall()
                if ended(*found)
            }

    def extend(self, runs: Sequence[Run], lease: float) -> set[int]:
        extended = set()
        with self._writing() as cursor:
            for run in sorted(runs):
                cursor.execute(
                    f"UPDATE django_jobs_job SET locked_until = {LATER.format('%s')} "
                    "WHERE id = %s AND status = 'running' AND token = %s AND locked_by = %s",
                    [lease, *run],
                )
                if cursor.rowcount:
                    extended.add(run.id)
        return extended

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

    def expired_exist(self) -> bool:
        return False

    def _answers(self, timeout: float) -> bool:
        try:
            raw = self.connection.get_new_connection(self.connection.get_connection_params())
        except (DatabaseError, sqlite3.Error):
            return False
        try:
            raw.execute("SELECT 1 FROM django_jobs_job LIMIT 1").fetchall()
        except sqlite3.Error:
            return False
        finally:
            raw.close()
        return True


def _take(cursor: Any, order: ClaimOrder, rows: list[Any]) -> list[Claimed]:
    for row in rows:
        cursor.execute(
            "UPDATE django_jobs_job SET status = 'running', parked = NULL, token = token + 1, locked_by = %s, "
            f"locked_until = {LATER.format('%s')}, started_at = COALESCE(started_at, {NOW}), last_started_at = {NOW} "
            "WHERE id = %s",
            [order.locked_by, order.lease, row[0]],
        )
    return [Claimed._make([row[0], row[1] + 1, order.locked_by, *row[2:8], read(row[8])]) for row in rows]


def _settle_one(cursor: Any, item: Settlement, losses: int, history: list[Any], max_uncounted: int) -> str:
    status = item.status
    convicted = item.witnessed and losses > 0 and died_before(history)
    if item.counts == "loss" and (convicted or losses + 1 >= max_uncounted):
        status = "dead"
    error = item.error
    if item.counts == "loss" and losses + 1 >= max_uncounted:
        error = f"Lost {losses + 1} times in a row, never seen to end. {error or ''}"
    if item.entry is not None:
        if len(history) >= HISTORY_LIMIT:
            del history[1]
        cursor.execute("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
        history.append({**json.loads(item.entry), "at": cursor.fetchone()[0]})
    cursor.execute(
        "UPDATE django_jobs_job SET status = %s, "
        f"run_at = CASE WHEN %s IS NULL THEN run_at ELSE {LATER.format('%s')} END, "
        "attempts = attempts + %s, losses = %s, last_error = COALESCE(%s, last_error), history = %s, "
        f"locked_by = NULL, locked_until = NULL, finished_at = CASE WHEN %s = 'ready' THEN NULL ELSE {NOW} END "
        "WHERE id = %s",
        [
            status,
            item.delay,
            (item.delay or 0.0) * (2 ** min(losses, 6) if item.counts == "loss" else 1),
            int(item.counts == "attempt"),
            {"loss": losses + 1, "nothing": losses}.get(item.counts, 0),
            error,
            json.dumps(history),
            status,
            item.run.id,
        ],
    )
    return status
