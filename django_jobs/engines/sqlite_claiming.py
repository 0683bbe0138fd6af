"""Looking for jobs on SQLite, and claiming them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django_jobs.engines.sqlite_atomic import SQLiteAtomic
from django_jobs.engines.sqlite_parts import EPOCH, IN_FORCE, LATER, NOW, not_paused, one_of, read, served
from django_jobs.engines.values import Claimed, ClaimOrder, ClaimResult, Lane, Look, in_order

_CLAIMED = (
    "id, token, type, payload, attempts, max_attempts, "
    "CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot, "
    # In whole milliseconds, as its clock has them.
    f"round((julianday(expires_at) - julianday('now')) * 86400.0, 3), queue, priority, {EPOCH.format('run_at')}, "
    "round((julianday('now') - julianday(run_at)) * 86400.0, 3), losses, "
    "json_extract(meta, '$.trace')"
)
_CLOCK = EPOCH.format("'now'")


class SQLiteClaiming(SQLiteAtomic):
    def claim(self, order: ClaimOrder) -> ClaimResult:
        lanes = order.lanes
        if lanes is None:
            found = self.look(order.queues, order.types).lanes
            lanes = tuple(sorted(found, key=lambda lane: (-lane.priority, lane.due, lane.id)))
        with self._writing() as cursor:
            if _is_anothers(cursor, order):
                return ClaimResult([], 0, 0)
            rows = _picked(cursor, lanes, order)
            paused = _paused_types(cursor)
            reasons = {row[0]: _parked_for(row[2], order, paused) for row in rows}
            away = [(reason, job_id) for job_id, reason in reasons.items() if reason]
            if away:
                cursor.executemany("UPDATE django_jobs_job SET parked = %s WHERE id = %s", away)
            taken = _take(cursor, order, [row for row in rows if not reasons[row[0]]])
            taken.sort(key=in_order(order.lanes))
            return ClaimResult(taken, len(away), sum(reason == "type" for reason, _ in away))

    def claim_parked(self, order: ClaimOrder) -> ClaimResult:
        where, parameters = served(order.queues)
        known, types = one_of("type", order.types)
        with self._writing() as cursor:
            if _is_anothers(cursor, order):
                return ClaimResult([], 0, 0)
            cursor.execute(
                f"SELECT {_CLAIMED} FROM django_jobs_job WHERE parked IS NOT NULL AND parked IN ('type', 'pause') "
                f"AND status = 'ready' AND run_at <= {NOW} AND {known} AND {not_paused('type')} "
                f"AND {not_paused('queue')} {where} ORDER BY priority DESC, run_at, id LIMIT %s",
                [*types, *parameters, order.limit],
            )
            return ClaimResult(_take(cursor, order, cursor.fetchall()), 0, 0)

    def claim_suspect(self, order: ClaimOrder) -> ClaimResult:
        where, parameters = self._suspects(order.queues, order.types)
        with self._writing() as cursor:
            if _is_anothers(cursor, order):
                return ClaimResult([], 0, 0)
            cursor.execute(
                f"SELECT {_CLAIMED} FROM django_jobs_job WHERE {where} AND run_at <= {NOW} "
                "ORDER BY losses, run_at, id LIMIT 1",
                parameters,
            )
            return ClaimResult(_take(cursor, order, cursor.fetchall()), 0, 0)

    def suspects_due(self, queues: tuple[str, ...] | None, types: tuple[str, ...], limit: int) -> list[float]:
        where, parameters = self._suspects(queues, types)
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"SELECT max(0, (julianday(run_at) - julianday('now')) * 86400.0) FROM django_jobs_job WHERE {where} "
                "ORDER BY run_at, id LIMIT %s",
                [*parameters, limit],
            )
            return [row[0] for row in cursor.fetchall()]

    def _suspects(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> tuple[str, list[str]]:
        where, parameters = served(queues)
        known, type_parameters = one_of("type", types)
        condition = f"parked = 'suspect' AND {known} AND {not_paused('type')} AND {not_paused('queue')} {where}"
        return condition, [*type_parameters, *parameters]

    def look(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Look:
        where, parameters = served(queues)
        known, type_parameters = one_of("type", types)
        with self.connection.cursor() as cursor:
            # Of the columns beside min(), SQLite gives those of the row that has it.
            cursor.execute(
                f"SELECT queue, priority, {EPOCH.format('min(run_at)')}, id, {_CLOCK} FROM django_jobs_job "
                f"WHERE status = 'ready' AND parked IS NULL AND {not_paused('queue')} {where} GROUP BY queue, priority",
                parameters,
            )
            rows = cursor.fetchall()
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM django_jobs_job WHERE parked IS NOT NULL AND parked IN ('type', 'pause') "
                f"AND status = 'ready' AND run_at <= {NOW} AND {known} AND {not_paused('type')} "
                f"AND {not_paused('queue')} {where})",
                [*type_parameters, *parameters],
            )
            parked = bool(cursor.fetchone()[0])
        lanes = tuple(Lane._make(row[:4]) for row in rows)
        now = rows[0][4] if rows else 0.0
        return Look(max(0.0, round(min(lane.due for lane in lanes) - now, 3)) if lanes else None, parked, lanes, now)

    def next_due(self, lanes: Sequence[Lane]) -> float | None:
        if not lanes:
            return None
        found = self.look(tuple({lane.queue for lane in lanes}), ())
        return found.due_in


def _is_anothers(cursor: Any, order: ClaimOrder) -> bool:
    if order.deployment is None:
        return False
    cursor.execute("SELECT 1 FROM django_jobs_deployment WHERE name IN ('', %s)", [order.deployment])
    return cursor.fetchone() is None


def _picked(cursor: Any, lanes: Sequence[Lane], order: ClaimOrder) -> list[Any]:
    """Return the rows to be claimed: of each lane so many from its head."""
    cursor.execute(f"SELECT name FROM django_jobs_pause WHERE kind = 'queue' AND {IN_FORCE}", [])
    paused = {row[0] for row in cursor.fetchall()}
    lanes = [lane for lane in lanes if lane.queue not in paused]
    heads = {lane: _head(cursor, "run_at, id", lane, order.oldest) for lane in lanes} if order.oldest else {}
    oldest = sorted((*row, lane) for lane, rows in heads.items() for row in rows)[: order.oldest]
    numbers = Counter(row[2] for row in oldest)
    left = order.limit - len(oldest)
    rows: list[Any] = []
    for lane in lanes:
        found = _head(cursor, _CLAIMED, lane, numbers[lane] + left)
        left -= max(len(found) - numbers[lane], 0)
        rows += found
    return rows


def _head(cursor: Any, columns: str, lane: Lane, limit: int) -> list[Any]:
    if limit == 0:
        return []
    cursor.execute(
        f"SELECT {columns} FROM django_jobs_job WHERE status = 'ready' AND parked IS NULL AND run_at <= {NOW} "
        "AND queue = %s AND priority = %s ORDER BY run_at, id LIMIT %s",
        [lane.queue, lane.priority, limit],
    )
    return list(cursor.fetchall())


def _take(cursor: Any, order: ClaimOrder, rows: list[Any]) -> list[Claimed]:
    for row in rows:
        cursor.execute(
            "UPDATE django_jobs_job SET status = 'running', parked = NULL, token = token + 1, locked_by = %s, "
            f"locked_until = {LATER.format('%s')}, started_at = COALESCE(started_at, {NOW}), last_started_at = {NOW}, "
            "idempotency_key = CASE WHEN key_holds = 'waiting' THEN NULL ELSE idempotency_key END WHERE id = %s",
            [order.locked_by, order.lease, row[0]],
        )
    return [Claimed._make([row[0], row[1] + 1, order.locked_by, *row[2:8], read(row[8]), *row[9:]]) for row in rows]


def _paused_types(cursor: Any) -> set[str]:
    cursor.execute(f"SELECT name FROM django_jobs_pause WHERE kind = 'type' AND {IN_FORCE}", [])
    return {row[0] for row in cursor.fetchall()}


def _parked_for(job_type: str, order: ClaimOrder, paused: set[str]) -> str | None:
    if job_type not in order.types:
        return "type"
    return "pause" if job_type in paused else None
