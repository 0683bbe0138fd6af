"""How jobs come into PostgreSQL, and how long whoever stores or changes one waits for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import psycopg
from django.db import OperationalError, transaction

from django_jobs.conf import conf
from django_jobs.engines.base import HOLDER_FIELDS, Engine, milliseconds
from django_jobs.engines.sql import statement
from django_jobs.engines.values import NewJob
from django_jobs.exceptions import EnqueueTimeout, StateConflict
from django_jobs.models import Job


class PostgreSQLStoring(Engine):
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
    def waiting_for(self, key: str) -> Iterator[None]:
        with self._bounded(key), self._lock_timeout():
            yield

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
        "schedules": [item.schedule for item in new],
        "slots": [item.slot for item in new],
    }
