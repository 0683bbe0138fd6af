"""How jobs come into a SQLite file: one writer at a time, whose end the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from django.db import OperationalError, transaction

from django_jobs.conf import conf
from django_jobs.engines.base import HOLDER_FIELDS, Engine, milliseconds
from django_jobs.engines.sqlite_parts import LATER, UNLESS_TAKEN, one_of, stored
from django_jobs.engines.values import NewJob, Word
from django_jobs.exceptions import EnqueueTimeout, StateConflict
from django_jobs.models import Job
from django_jobs.texts import text as _


class SQLiteStoring(Engine):
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

    @contextmanager
    def acting(self) -> Iterator[None]:
        limit = conf().enqueue_timeout
        # All of it is bounded: inside the caller's transaction the lock may be had only by the first write.
        try:
            with self._bounded(None), self._writing():
                yield
        except EnqueueTimeout as error:
            raise StateConflict(
                _(
                    "Another transaction holds the SQLite database, and did not end within %g s (ENQUEUE_TIMEOUT); try again "
                    "when it is over.",
                    limit,
                )
            ) from error

    def insert(self, new: NewJob, word: Word | None = None) -> Job:
        return self._inserted(new, "")[0]

    def insert_keyed(self, new: NewJob, key: str) -> Job | None:
        with self._bounded(key):
            return next(iter(self._inserted(new, UNLESS_TAKEN)), None)

    @contextmanager
    def storing(self) -> Iterator[None]:
        with ExitStack() as stack:
            with self._bounded(None):
                stack.enter_context(self._writing())
            yield

    def insert_many(self, new: Sequence[NewJob]) -> list[int | None]:
        sql = _insert(UNLESS_TAKEN, "id")
        with self._bounded(None), self.connection.cursor() as cursor:
            rows = [cursor.execute(sql, _parameters(item)).fetchone() for item in new]
        return [None if row is None else row[0] for row in rows]

    def holder(self, key: str) -> Job | None:
        found: Job | None = Job.objects.using(self.alias).filter(idempotency_key=key).first()
        return found

    def holders(self, keys: Sequence[str]) -> dict[str, Job]:
        # Whoever stores many has the write lock: nothing can be claimed.
        where, parameters = one_of("idempotency_key", tuple(keys))
        sql = f"SELECT {', '.join(HOLDER_FIELDS)} FROM django_jobs_job WHERE idempotency_key IS NOT NULL AND {where}"
        return {str(job.idempotency_key): job for job in Job.objects.using(self.alias).raw(sql, parameters)}

    def waiting_for(self, key: str) -> AbstractContextManager[None]:
        return self._bounded(key)

    @contextmanager
    def _bounded(self, key: str | None) -> Iterator[None]:
        seconds = conf().enqueue_timeout
        try:
            with self._busy_timeout(seconds):
                yield
        except OperationalError as error:
            # Not SQLITE_BUSY_SNAPSHOT: a transaction that has read an older state gets it at once, without waiting.
            if getattr(error.__cause__, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise EnqueueTimeout(key, seconds) from error
            raise

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
        return list(Job.objects.using(self.alias).raw(_insert(conflict, "*"), _parameters(new)))


def _insert(conflict: str, returned: str) -> str:
    return (
        "INSERT INTO django_jobs_job "
        "(type, queue, priority, payload, idempotency_key, key_holds, run_at, expires_at, max_attempts, timeout, meta, "
        "schedule, slot) "
        "VALUES (%(type)s, %(queue)s, %(priority)s, %(payload)s, %(idempotency_key)s, %(key_holds)s, "
        f"COALESCE(%(run_at)s, {LATER.format('%(delay)s')}), COALESCE(%(expires_at)s, "
        f"CASE WHEN %(expires_in)s IS NOT NULL THEN {LATER.format('%(expires_in)s')} END), "
        f"%(max_attempts)s, %(timeout)s, %(meta)s, %(schedule)s, %(slot)s) {conflict} RETURNING {returned}"
    )


def _parameters(new: NewJob) -> dict[str, Any]:
    found = new.parameters()
    for name in ("run_at", "expires_at", "slot"):
        found[name] = None if found[name] is None else stored(found[name])
    return found
