"""What `once` and `outside` ask of the jobs' database: the same statements for both kinds of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import JSONField, TextField, Value
from django.db.models.functions import Cast

from django_jobs.conf import conf
from django_jobs.engines import engine
from django_jobs.engines.idle import in_transaction
from django_jobs.exceptions import EffectTimeout, EnqueueTimeout
from django_jobs.models import Effect, EffectQuerySet
from django_jobs.models.clock import Clock

_TAKE = (
    "INSERT INTO django_jobs_effect (kind, key, job_id) VALUES ('once', %s, %s) "
    "ON CONFLICT (kind, key) DO NOTHING RETURNING id"
)
# One that was answered is left as it is, and nothing is returned.
_ASK = (
    "INSERT INTO django_jobs_effect (kind, key, job_id) VALUES ('outside', %s, %s) "
    "ON CONFLICT (kind, key) DO UPDATE SET asks = django_jobs_effect.asks + 1, asked_at = EXCLUDED.asked_at, "
    "job_id = EXCLUDED.job_id WHERE django_jobs_effect.answered_at IS NULL RETURNING asks"
)


class Stored(NamedTuple):
    """What whoever had the effect left."""

    result: Any


class EffectStore:
    def __init__(self) -> None:
        self._engine = engine()
        self.alias = self._engine.alias

    @property
    def in_atomic(self) -> bool:
        """Whether the caller is inside `transaction.atomic`; that of a TestCase is none of its own."""
        return self._engine.connection.in_atomic_block and self.in_transaction

    @property
    def in_transaction(self) -> bool:
        """Whether the caller has a transaction open, by whatever means."""
        self._engine.connection.ensure_connection()  # the project may have autocommit off
        return in_transaction(self._engine.connection, of_test_case=False)

    def savepoint(self) -> AbstractContextManager[None]:
        return transaction.atomic(using=self.alias)

    def working_connection(self) -> AbstractContextManager[None]:
        return self._engine.on_working_connection()

    def take(self, key: str, job_id: int | None) -> bool:
        """Insert a key of `once` unless it is taken; return whether it was inserted. Call it in a savepoint.

        Raise EffectTimeout when another transaction has the key and does not end in time.
        """
        try:
            with self._engine.waiting_for(key):
                return self._row(_TAKE, key, job_id) is not None
        except EnqueueTimeout as error:
            raise EffectTimeout(key, conf().enqueue_timeout) from error.__cause__

    def ask(self, key: str, job_id: int | None) -> int | None:
        """Record that somebody is going to ask; return for the how manieth time, None when there is an answer."""
        row = self._row(_ASK, key, job_id)
        return None if row is None else int(row[0])

    def taken(self, key: str) -> Stored | None:
        return self._stored(Effect.Kind.ONCE, key)

    def answered(self, key: str) -> Stored | None:
        return self._stored(Effect.Kind.OUTSIDE, key)

    def keep(self, key: str, result: str) -> None:
        """Store the result, as JSON, of whoever has inserted a key of `once`."""
        self._rows(Effect.Kind.ONCE, key).update(result=_json(result))

    def answer(self, key: str, job_id: int | None, result: str | None) -> None:
        """Record an answer, the first that comes; also when the record of asking was deleted meanwhile."""
        values: dict[str, Any] = {"answered_at": Clock(), "result": None if result is None else _json(result)}
        if not self._rows(Effect.Kind.OUTSIDE, key).filter(answered_at__isnull=True).update(**values):
            row = Effect(kind=Effect.Kind.OUTSIDE, key=key, job_id=job_id, **values)
            Effect.objects.using(self.alias).bulk_create([row], ignore_conflicts=True)

    def _stored(self, kind: Effect.Kind, key: str) -> Stored | None:
        results = self._rows(kind, key).values_list("result", flat=True)
        return next((Stored(result) for result in results), None)

    def _rows(self, kind: Effect.Kind, key: str) -> EffectQuerySet:
        found: EffectQuerySet = Effect.objects.using(self.alias).filter(kind=kind, key=key)
        return found

    def _row(self, sql: str, *parameters: str | int | None) -> Any:
        with self._engine.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchone()


def _json(text: str) -> Any:
    # As the text that was checked: written anew by Django it would have exponents, which jsonb reads as whole numbers.
    return Cast(Value(text, TextField()), JSONField())
