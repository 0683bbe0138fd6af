from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from django_jobs.engines import postgresql_wake
from django_jobs.engines.base import Listening, milliseconds
from django_jobs.engines.causes import EXPIRED, EXPIRED_ENTRY, LEASE_RAN_OUT
from django_jobs.engines.idle import close_if_unusable
from django_jobs.engines.postgresql_atomic import PostgreSQLAtomic
from django_jobs.engines.postgresql_session import is_pooled, set_up, why_not_writable
from django_jobs.engines.sql import statement
from django_jobs.engines.values import (
    LAST_ALONE,
    Claimed,
    ClaimOrder,
    ClaimResult,
    Done,
    Expired,
    Lane,
    Look,
    Run,
    Settlement,
    in_order,
)

# Characters of JSON from which a result is written by a statement of its own.
LARGE_RESULT = 20_000


class PostgreSQLEngine(PostgreSQLAtomic):
    name = "postgresql"
    reaps_by_lease = True
    notifies = True

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self._prepared = threading.local()

    def describe(self) -> str:
        version = ".".join(map(str, self.connection.get_database_version()))
        return f"PostgreSQL {version}{' through a pooler' if is_pooled(self.connection) else ''}"

    def prepare(self, statement_timeout: float, role: str = "") -> None:
        connection = self.connection
        connection.ensure_connection()
        raw = connection.connection
        if getattr(self._prepared, "raw", None) is raw:
            return
        set_up(connection, milliseconds(statement_timeout), role)
        self._prepared.raw = raw

    def claim(self, order: ClaimOrder) -> ClaimResult:
        lanes = self._lanes_in_order(order) if order.lanes is None else order.lanes
        return self._claimed("claim", order, {**_places(lanes), "limit": order.limit, "oldest": order.oldest})

    def _lanes_in_order(self, order: ClaimOrder) -> list[Lane]:
        found = self.look(order.queues, order.types)
        return sorted(found.lanes, key=lambda lane: (-lane.priority, lane.due, lane.id))

    def claim_parked(self, order: ClaimOrder) -> ClaimResult:
        return self._claimed("claim_parked", order, {**_queues(order.queues), "limit": order.limit})

    def claim_suspect(self, order: ClaimOrder) -> ClaimResult:
        return self._claimed("claim_suspect", order, {**_queues(order.queues), "limit": order.limit})

    def _claimed(self, name: str, order: ClaimOrder, parameters: dict[str, Any]) -> ClaimResult:
        common = {
            "locked_by": order.locked_by,
            "lease": order.lease,
            "types": list(order.types),
            "deployment": order.deployment,
        }
        rows = self._rows(name, common | parameters)
        jobs = [Claimed._make(row[1:]) for row in rows if row[0] is None]
        # RETURNING keeps no order.
        jobs.sort(key=in_order(order.lanes))
        return ClaimResult(jobs, len(rows) - len(jobs), sum(row[0] == "type" for row in rows))

    def suspects_due(self, queues: tuple[str, ...] | None, types: tuple[str, ...], limit: int) -> list[float]:
        parameters = {**_queues(queues), "types": list(types), "limit": limit}
        return [row[0] for row in self._rows("suspects_due", parameters)]

    def look(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Look:
        due_in, parked, *lanes, now = self._rows("look", {**_queues(queues), "types": list(types)})[0]
        return Look(due_in, parked, tuple(map(Lane, *lanes)) if due_in is not None else (), now)

    def next_due(self, lanes: Sequence[Lane]) -> float | None:
        due_in = self._rows("next_due", _places(lanes))[0][0]
        return None if due_in is None else float(due_in)

    def complete(self, done: Sequence[Done]) -> dict[int, str]:
        large = [item for item in done if item.result is not None and len(item.result) > LARGE_RESULT]
        small = sorted(item for item in done if item.result is None or len(item.result) <= LARGE_RESULT)
        written: dict[int, str] = {}
        for item in large:
            written.update(self._rows("complete_large", {**item.run._asdict(), "result": item.result}))
        if small:
            results = [(item.run, item.result) for item in small if item.result is not None]
            given = {**_fences([item.run for item in small]), "results": _by_run(results) if results else None}
            written.update(self._rows("complete", given))
        return written

    def settle(self, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
        ordered = sorted(settlements, key=lambda item: item.run)
        rows = self._rows(
            "settle",
            {
                **_fences([item.run for item in ordered]),
                "statuses": [item.status for item in ordered],
                "counts": [item.counts for item in ordered],
                "delays": [item.delay for item in ordered],
                "witnessed": [item.witnessed for item in ordered],
                "suspicious": [item.suspicious for item in ordered],
                "errors": [item.error for item in ordered],
                "entries": [item.entry for item in ordered],
                "max_uncounted": max_uncounted,
                "last_alone": LAST_ALONE,
            },
        )
        return dict(rows)

    def ended_by(self, runs: Sequence[Run], waiting: bool = True) -> dict[int, str]:
        with self.connection.cursor() as cursor:
            # FOR SHARE, and the status looked at afterwards: an end whose COMMIT is under way is waited for, not missed.
            cursor.execute(
                "SELECT job.id, job.status, job.status <> 'running' "
                "AND (job.status = 'done' OR job.history @> jsonb_build_array(jsonb_build_object('run', job.token))) "
                "AND NOT job.history @> jsonb_build_array("
                "jsonb_build_object('run', job.token, 'cause', %(lost)s::text)) FROM django_jobs_job job "
                "JOIN unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS given(id, token) USING (id) "
                # Named once more: as a join alone the planner may read the whole table.
                "WHERE job.id = ANY (%(ids)s::bigint[]) AND job.token = given.token ORDER BY job.id"
                + (" FOR SHARE OF job" if waiting else ""),
                {"ids": [run.id for run in runs], "tokens": [run.token for run in runs], "lost": LEASE_RAN_OUT},
            )
            return {job_id: status for job_id, status, ended in cursor.fetchall() if ended}

    def extend(self, runs: Sequence[Run], lease: float) -> dict[int, bool]:
        extended = self._extended(sorted(runs), lease)
        missing = [run for run in runs if run.id not in extended]
        return extended | dict.fromkeys(self._still_held(missing), False) if missing else extended

    def renew(self, run: Run, lease: float) -> bool:
        return self._extended([run], lease).get(run.id) is False

    def _extended(self, runs: Sequence[Run], lease: float) -> dict[int, bool]:
        return dict(self._rows("extend", {**_fences(runs), "lease": lease}))

    def _still_held(self, runs: Sequence[Run]) -> set[int]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT job.id FROM django_jobs_job job "
                "JOIN unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[]) "
                "AS given(id, token, locked_by) USING (id) "
                "WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'running' AND job.token = given.token "
                "AND job.locked_by = given.locked_by",
                _fences(runs),
            )
            return {row[0] for row in cursor.fetchall()}

    def store_progress(self, reports: Sequence[tuple[Run, str]]) -> None:
        ordered = sorted(reports)
        with self.connection.cursor() as cursor:
            cursor.execute(
                statement("progress"),
                {**_fences([run for run, _ in ordered]), "reports": _by_run(ordered)},
            )

    def expired(self, limit: int) -> list[Expired]:
        rows = self._rows("expired", {"limit": limit})
        return [Expired(Run(*row[:3]), row[3], row[4]) for row in rows]

    def cancel_expired(self, limit: int) -> int:
        return len(self._rows("cancel_expired", {"limit": limit, "error": EXPIRED, "entry": EXPIRED_ENTRY}))

    def expired_exist(self) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM django_jobs_job "
                "WHERE status = 'running' AND locked_until < clock_timestamp())"
            )
            return bool(cursor.fetchone()[0])

    def notify(self, payload: str) -> None:
        try:
            postgresql_wake.send(self.connection, payload)
        except Exception:
            close_if_unusable(self.connection)
            raise

    def channel(self) -> str:
        return postgresql_wake.channel(self.connection)

    def listen(self, channel: str, dsn: str | None, options: dict[str, Any], timeout: float) -> Listening:
        known = postgresql_wake.parameters(self.connection.get_connection_params(), dsn)
        name = {"application_name": options["application_name"]}
        return postgresql_wake.Ear({**options, **known, **name}, channel, timeout)

    def why_not_writable(self, timeout: float) -> str | None:
        return why_not_writable(self.connection.get_connection_params(), timeout)


def _queues(queues: tuple[str, ...] | None) -> dict[str, Any]:
    return {"queues": None if queues is None else list(queues)}


def _places(lanes: Sequence[Lane]) -> dict[str, list[Any]]:
    queues, priorities, dues, ids = zip(*lanes, strict=True) if lanes else ((), (), (), ())
    return {"lane_queues": [*queues], "lane_priorities": [*priorities], "lane_dues": [*dues], "lane_ids": [*ids]}


def _by_run(texts: Iterable[tuple[Run, str]]) -> str:
    """Return one JSON object of JSON texts, each under its job's id and token."""
    return "{" + ",".join(f'"{run.id}:{run.token}":{text}' for run, text in texts) + "}"


def _fences(runs: Sequence[Run]) -> dict[str, Any]:
    ids, tokens, holders = zip(*runs, strict=True) if runs else ((), (), ())
    return {"ids": _array(ids), "tokens": _array(tokens), "holders": _texts(holders)}


def _array(numbers: Iterable[int]) -> str:
    """Return numbers as the text of an array, for which the driver takes 1 us each."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _texts(texts: Sequence[str | None]) -> str:
    """Return texts, few of them different, as the text of an array, for which the driver takes 2 us each."""
    quoted = {text: "NULL" if text is None else _quoted(text) for text in set(texts)}
    return "{" + ",".join(map(quoted.__getitem__, texts)) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'
