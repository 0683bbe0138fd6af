from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import psycopg
from django.db import OperationalError, transaction

from django_jobs.conf import conf
from django_jobs.engines.base import (
    EXPIRED,
    EXPIRED_ENTRY,
    HOLDER_FIELDS,
    LEASE_RAN_OUT,
    STREAK,
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
    milliseconds,
)
from django_jobs.engines.sql import statement
from django_jobs.exceptions import EnqueueTimeout, StateConflict
from django_jobs.models import Job

# Characters of JSON from which a result is written by a statement of its own.
LARGE_RESULT = 20_000


class PostgreSQLEngine(Engine):
    name = "postgresql"
    reaps_by_lease = True

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self._prepared = threading.local()

    def describe(self) -> str:
        return f"PostgreSQL {'.'.join(map(str, self.connection.get_database_version()))}"

    def prepare(self, statement_timeout: float) -> None:
        connection = self.connection
        connection.ensure_connection()
        raw = connection.connection
        if getattr(self._prepared, "raw", None) is raw:
            return
        # Whatever the project's default: a claim under REPEATABLE READ fails whenever another worker was faster.
        raw.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        limit = milliseconds(statement_timeout)
        with connection.cursor() as cursor:
            cursor.execute(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; "
                f"SET statement_timeout = {limit}; SET lock_timeout = {limit}; "
                f"SET idle_in_transaction_session_timeout = {limit}; "
                # Without statistics, or old ones, claim_parked would gather and sort all that is parked: measured with
                # 200,000 parked jobs, 200,020 rows read for a claim of 20, and 40 with this.
                "SET enable_bitmapscan = off"
            )
        self._prepared.raw = raw

    def insert(self, new: NewJob) -> Job:
        with self.on_working_connection():
            return self._inserted(statement("insert") + "RETURNING *", new)[0]

    def insert_keyed(self, new: NewJob, key: str) -> Job | None:
        sql = statement("insert") + (
            "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING *"
        )
        # Inside the caller's transaction this is a savepoint: a wait that is given up leaves it usable.
        with (
            self.on_working_connection(),
            self._bounded(key),
            transaction.atomic(using=self.alias),
            self._lock_timeout(),
        ):
            return next(iter(self._inserted(sql, new)), None)

    def insert_many(self, new: Sequence[NewJob]) -> list[int | None]:
        columns = _columns(new)
        if not any(columns["keys"]):
            return [row[0] for row in self._rows("insert_many", columns)]
        with self._bounded(None), self._lock_timeout():
            return [row[0] for row in self._rows("insert_many", columns)]

    def holder(self, key: str) -> Job | None:
        return self._holders([key], "*").get(key)

    def holders(self, keys: Sequence[str]) -> dict[str, Job]:
        return self._holders(keys, ", ".join(HOLDER_FIELDS))

    def _holders(self, keys: Sequence[str], columns: str) -> dict[str, Job]:
        jobs = Job.objects.using(self.alias)
        sql = f"SELECT {columns} FROM django_jobs_job WHERE idempotency_key = ANY (%s)"
        with self.on_working_connection():
            found = {str(job.idempotency_key): job for job in jobs.raw(sql, [list(keys)])}
        waiting = [key for key, job in found.items() if job.key_holds == Job.KeyHolds.WAITING]
        if waiting and self.connection.in_atomic_block:
            for key in waiting:
                del found[key]
            which = waiting[0] if len(waiting) == 1 else None
            with self._bounded(which), transaction.atomic(using=self.alias), self._lock_timeout():
                # A claim skips rows that somebody holds, and other callers may share this hold. One that was claimed
                # meanwhile has no key now, and is not returned.
                locked = jobs.raw(f"{sql} ORDER BY id FOR SHARE", [waiting])
                found |= {str(job.idempotency_key): job for job in locked}
        return found

    @contextmanager
    def _bounded(self, key: str | None) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise EnqueueTimeout(key, conf().enqueue_timeout) from error
            raise

    def _inserted(self, sql: str, new: NewJob) -> list[Job]:
        return list(Job.objects.using(self.alias).raw(sql, asdict(new)))

    @contextmanager
    def _lock_timeout(self) -> Iterator[None]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)",
                [str(milliseconds(conf().enqueue_timeout))],
            )
            before = cursor.fetchone()[0]
            yield
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])

    def claim(self, order: ClaimOrder) -> ClaimResult:
        return self._claimed("claim", order)

    def claim_parked(self, order: ClaimOrder) -> ClaimResult:
        return self._claimed("claim_parked", order)

    def _claimed(self, name: str, order: ClaimOrder) -> ClaimResult:
        rows = self._rows(
            name,
            {
                "locked_by": order.locked_by,
                "lease": order.lease,
                "limit": order.limit,
                "queues": None if order.queues is None else list(order.queues),
                "types": list(order.types),
            },
        )
        # RETURNING keeps no order.
        rows.sort(key=lambda row: (-row[0], row[1], row[3]))
        jobs = [Claimed(row[3], row[4], order.locked_by, *row[5:]) for row in rows if row[2] is None]
        return ClaimResult(jobs, len(rows) - len(jobs), sum(row[2] == "type" for row in rows))

    def look(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Look:
        due_in, parked = self._rows("look", {"queues": None if queues is None else list(queues), "types": list(types)})[
            0
        ]
        return Look(due_in, parked)

    def complete(self, done: Sequence[Done]) -> dict[int, str]:
        large = [item for item in done if item.result is not None and len(item.result) > LARGE_RESULT]
        small = sorted(item for item in done if item.result is None or len(item.result) <= LARGE_RESULT)
        written: dict[int, str] = {}
        for item in large:
            written.update(self._rows("complete_large", {**item.run._asdict(), "result": item.result}))
        if small:
            results = [item.result for item in small]
            written.update(self._rows("complete", {**_fences([item.run for item in small]), "results": results}))
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
                "errors": [item.error for item in ordered],
                "entries": [item.entry for item in ordered],
                "max_uncounted": max_uncounted,
                "streak": list(STREAK),
            },
        )
        return dict(rows)

    def ended_by(self, runs: Sequence[Run]) -> set[int]:
        with self.connection.cursor() as cursor:
            # FOR SHARE, and the status looked at afterwards: an end whose COMMIT is under way is waited for, not missed.
            cursor.execute(
                "SELECT job.id, job.status <> 'running' AND NOT job.history @> jsonb_build_array("
                "jsonb_build_object('run', job.token, 'cause', %(lost)s::text)) FROM django_jobs_job job "
                "JOIN unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS given(id, token) USING (id) "
                # Named once more: as a join alone the planner may read the whole table.
                "WHERE job.id = ANY (%(ids)s::bigint[]) AND job.token = given.token ORDER BY job.id FOR SHARE OF job",
                {"ids": [run.id for run in runs], "tokens": [run.token for run in runs], "lost": LEASE_RAN_OUT},
            )
            return {job_id for job_id, ended in cursor.fetchall() if ended}

    def extend(self, runs: Sequence[Run], lease: float) -> dict[int, bool]:
        fences = _fences(sorted(runs))
        extended: dict[int, bool] = dict(self._rows("extend", {**fences, "lease": lease}))
        missing = [run for run in runs if run.id not in extended]
        return extended | dict.fromkeys(self._still_held(missing), False) if missing else extended

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
                {**_fences([run for run, _ in ordered]), "reports": [report for _, report in ordered]},
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

    @contextmanager
    def acting(self) -> Iterator[None]:
        limit = conf().enqueue_timeout
        try:
            with transaction.atomic(using=self.alias), self._lock_timeout():
                yield
        except OperationalError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise StateConflict(
                    f"Another transaction holds the job or its idempotency key, and did not end within {limit:g} s "
                    "(ENQUEUE_TIMEOUT); try again when it is over."
                ) from error
            raise

    def _answers(self, timeout: float) -> bool:
        parameters = self.connection.get_connection_params()
        for name in ("pool", "cursor_factory", "context"):
            parameters.pop(name, None)
        parameters["connect_timeout"] = max(2, int(timeout))
        try:
            raw = psycopg.connect(**parameters, autocommit=True)
        except psycopg.Error:
            return False
        try:
            return _is_writable(raw.pgconn, timeout)
        except psycopg.Error:
            return False
        finally:
            raw.close()

    def _rows(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement(name), parameters)
            return list(cursor.fetchall())


def _columns(new: Sequence[NewJob]) -> dict[str, list[Any]]:
    return {
        "types": [item.type for item in new],
        "queues": [item.queue for item in new],
        "priorities": [item.priority for item in new],
        "payloads": [item.payload for item in new],
        "keys": [item.idempotency_key for item in new],
        "holds": [item.key_holds for item in new],
        "run_ats": [item.run_at for item in new],
        "delays": [item.delay for item in new],
        "expires_ats": [item.expires_at for item in new],
        "expires_ins": [item.expires_in for item in new],
        "max_attempts": [item.max_attempts for item in new],
        "timeouts": [item.timeout for item in new],
        "metas": [item.meta for item in new],
    }


def _is_writable(pgconn: psycopg.pq.abc.PGconn, timeout: float) -> bool:
    """Ask without psycopg's own waiting, which has no limit: who lets us in may not answer."""
    until = time.monotonic() + max(timeout, 1.0)
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    pgconn.send_query(b"SELECT current_setting('transaction_read_only')")
    pgconn.flush()
    while pgconn.is_busy():
        if not poll.poll(max(until - time.monotonic(), 0.0) * 1000):
            return False
        pgconn.consume_input()
    result = pgconn.get_result()
    return result is not None and result.get_value(0, 0) == b"off"


def _fences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    return {
        "ids": [run.id for run in runs],
        "tokens": [run.token for run in runs],
        "holders": [run.locked_by for run in runs],
    }
