"""How jobs come into PostgreSQL, and how long whoever stores or changes one waits for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from django.db import OperationalError, transaction

from django_jobs import payload
from django_jobs.conf import conf
from django_jobs.engines import postgresql_prepared as prepared
from django_jobs.engines.base import HOLDER_FIELDS, Engine, WorkingConnection, milliseconds
from django_jobs.engines.made import Draft
from django_jobs.engines.values import NewJob, Terms, Word
from django_jobs.exceptions import EnqueueTimeout, StateConflict
from django_jobs.models import Job
from django_jobs.texts import text as _


class PostgreSQLStoring(Engine):
    def insert(self, new: NewJob, word: Word | None = None) -> Job:
        connection, draft = self.connection, Draft(self.alias, new)
        with WorkingConnection(connection):
            row = prepared.row_of(connection, "insert", new.parameters, new.texts, draft.prepare, word)
        return draft.made(connection, row)

    def insert_keyed(self, new: NewJob, key: str) -> Job | None:
        connection, draft = self.connection, Draft(self.alias, new)
        timeout = str(milliseconds(conf().enqueue_timeout))
        with WorkingConnection(connection), self._bounded(key), self._savepoint():
            *row, _ = prepared.row_of(
                connection,
                "insert_keyed",
                lambda: {**new.parameters(), "lock_timeout": timeout},
                {**new.texts, "lock_timeout": timeout.encode()},
                draft.prepare,
            )
        return None if row[0] is None else draft.made(connection, row)

    def _savepoint(self) -> AbstractContextManager[None]:
        """Keep the caller's transaction usable when a wait is given up; without one the statement is its own."""
        alone = self.connection.get_autocommit() and not self.connection.in_atomic_block
        return nullcontext() if alone else transaction.atomic(using=self.alias)

    def insert_many(self, new: Sequence[NewJob]) -> list[int | None]:
        keys = [item.idempotency_key for item in new]
        if not any(keys):
            return self.inserting(new)()
        parameters = _of_many(*_told_apart(new), new, keys)
        with self._bounded(None), self._lock_timeout():
            return [row[0] for row in self._rows("insert_many", parameters)]

    def inserting(self, new: Sequence[NewJob]) -> Callable[[], list[int | None]]:
        terms, which = _told_apart(new)
        if len(terms) > 1:
            wait = prepared.begin(self.connection, "insert_many", _of_many(terms, which, new, []))
            return lambda: [int(row[0]) for row in wait()]
        wait = prepared.begin(self.connection, "insert_alike", {**terms[0].parameters(), "payloads": _in_lines(new)})
        return lambda: [*sorted(int(row[0]) for row in wait())]

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
                    _(
                        "Another transaction holds the job or its idempotency key, and did not end within %g s "
                        "(ENQUEUE_TIMEOUT); try again when it is over.",
                        limit,
                    )
                ) from error
            raise

    def _rows(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        return prepared.rows(self.connection, name, parameters)


def _of_many(
    terms: Sequence[Terms], which: Sequence[int], new: Sequence[NewJob], keys: Sequence[str | None]
) -> dict[str, str]:
    return {
        "terms": payload.dump([_as_json(item) for item in terms]),
        "which": ",".join(map(str, which)),
        "payloads": _in_lines(new),
        "keys": payload.dump(keys),
    }


def _in_lines(new: Sequence[NewJob]) -> str:
    return "\n".join([item.payload for item in new])


def _as_json(terms: Terms) -> dict[str, Any]:
    found = terms.parameters()
    for name in ("run_at", "expires_at", "slot"):
        if found[name] is not None:
            found[name] = found[name].isoformat()
    return found


def _told_apart(new: Sequence[NewJob]) -> tuple[list[Terms], list[int]]:
    """Return the terms among these jobs, and by their numbers which each job has: nothing where all have the same."""
    numbers: dict[int, int] = {}
    terms: list[Terms] = []
    which = []
    for item in new:
        number = numbers.get(id(item.terms))
        if number is None:
            terms.append(item.terms)
            number = numbers[id(item.terms)] = len(terms)
        which.append(number)
    return terms, which if len(terms) > 1 else []
