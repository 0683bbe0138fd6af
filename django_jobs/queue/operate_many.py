"""What people do to many jobs of which nothing has to be said one by one: one statement for all of them.

Each takes jobs that the caller has locked in the state that it saw, and gives their rows what `operate` gives to one.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Expression, F, Func, JSONField, TextField, Value, When
from django.db.models.functions import JSONObject, Least

from django_jobs import notify
from django_jobs.engines import engine
from django_jobs.engines.causes import CALLED_OFF, EDITED, HISTORY_LIMIT, REQUEUED
from django_jobs.models import Job, JobQuerySet
from django_jobs.models.clock import Clock, ClockText


class JsonKind(Func):
    """What a JSON value is: "array" and so on."""

    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, function="jsonb_typeof", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, function="json_type", **extra)


class _WithLine(Func):
    """A history and a line more; of a full one the second line goes, as of one job. What is no list stays as it is."""

    output_field = JSONField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        kept = f"CASE WHEN jsonb_array_length(history) >= {HISTORY_LIMIT} THEN history - 1 ELSE history END"
        more = f"({kept}) || jsonb_build_array(%(expressions)s)"
        template = f"CASE WHEN jsonb_typeof(history) = 'array' THEN {more} ELSE history END"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        full = f"json_array_length(history) >= {HISTORY_LIMIT}"
        kept = f"CASE WHEN {full} THEN json_remove(history, '$[1]') ELSE history END"
        more = f"json_insert({kept}, '$[#]', json(%(expressions)s))"
        template = f"CASE WHEN json_type(history) = 'array' THEN {more} ELSE history END"
        return self.as_sql(compiler, connection, template=template, **extra)


def requeue(rows: JobQuerySet, said: str) -> None:
    """Requeue jobs that ended, each with the key that it has: one that gave its key up is for `operate`."""
    found = engine(rows.db)
    queues = set(rows.filter(suspect=False).order_by().values_list("queue", flat=True).distinct())
    rows.update(
        status=Job.Status.READY,
        run_at=Clock(),
        expires_at=None,
        attempts=0,
        losses=Least(F("losses"), Value(1)),
        parked=Case(When(suspect=True, then=Value(Job.Parked.SUSPECT.value)), default=Value(None)),
        cancel_reason=None,
        finished_at=None,
        progress=None,
        result=None,
        history=_line(REQUEUED, said),
    )
    for queue in sorted(queues):
        notify.ready(found, queue)


def cancel(rows: JobQuerySet, said: str) -> None:
    """Cancel jobs that wait."""
    rows.update(
        status=Job.Status.CANCELLED,
        parked=None,
        finished_at=Clock(),
        cancel_reason=said,
        history=_line(CALLED_OFF, said),
        idempotency_key=Case(When(key_holds=Job.KeyHolds.WINDOW, then=F("idempotency_key")), default=Value(None)),
    )


def move(rows: JobQuerySet, queue: str, said: str) -> None:
    """Put jobs that do not run into another queue; they keep their due times."""
    waits = rows.filter(status=Job.Status.READY, suspect=False).exists()
    rows.update(queue=queue, history=_line(EDITED, f"{said} (queue)"))
    if waits:
        notify.ready(engine(rows.db), queue)


def _line(cause: str, said: str) -> Expression:
    text = TextField()
    line = JSONObject(
        run=F("token"),
        cause=Value(cause, text),
        error=Value(said, text),
        worker=Value("", text),
        seconds=Value(0.0),
        at=ClockText(),
    )
    return _WithLine(line)
