"""The pauses that hold the jobs of schedules: those are made all the same, and wait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from django.db.models.functions import Now

from django_jobs import registry
from django_jobs.models import Pause, Schedule
from django_jobs.models.clock import from_row
from django_jobs.texts import Text
from django_jobs.texts import text as _


def pauses(alias: str) -> list[Any]:
    """Return the pauses in force, queues first, each with the database's `clock`."""
    return list(Pause.objects.using(alias).in_force().annotate(clock=Now()).order_by("kind", "name"))


def holding(schedule: Schedule, in_force: Sequence[Any]) -> tuple[Any, ...]:
    """Return those of the pauses that hold what a schedule makes."""
    job_type = registry.find(schedule.type)
    queue = schedule.queue or (job_type.queue if job_type else "")
    wanted = {(Pause.Kind.QUEUE, queue), (Pause.Kind.TYPE, schedule.type)}
    return tuple(row for row in in_force if (row.kind, row.name) in wanted)


def said(held_by: Sequence[Any]) -> Text:
    """Return which pauses those are, and until when they last; nothing of none."""
    if not held_by:
        return Text()
    return reduce(lambda first, last: _("%(first)s and %(last)s", first=first, last=last), map(_said, held_by))


def _said(row: Any) -> Text:
    words = {"name": row.name, "end": _end(row)}
    if row.kind == Pause.Kind.QUEUE:
        return _("the queue %(name)r is paused %(end)s", **words)
    return _("the type %(name)r is paused %(end)s", **words)


def _end(row: Any) -> Text:
    if row.until is None:
        return _("until it is resumed")
    return _("until %s", from_row(row.until, row._state.db).isoformat(timespec="seconds"))
