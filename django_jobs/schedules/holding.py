"""The pauses that hold the jobs of schedules: those are made all the same, and wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models.functions import Now

from django_jobs import registry
from django_jobs.models import Pause, Schedule
from django_jobs.models.clock import from_row


def pauses(alias: str) -> list[Any]:
    """Return the pauses in force, queues first, each with the database's `clock`."""
    return list(Pause.objects.using(alias).in_force().annotate(clock=Now()).order_by("kind", "name"))


def holding(schedule: Schedule, in_force: Sequence[Any]) -> tuple[Any, ...]:
    """Return those of the pauses that hold what a schedule makes."""
    job_type = registry.find(schedule.type)
    queue = schedule.queue or (job_type.queue if job_type else "")
    wanted = {(Pause.Kind.QUEUE, queue), (Pause.Kind.TYPE, schedule.type)}
    return tuple(row for row in in_force if (row.kind, row.name) in wanted)


def said(held_by: Sequence[Any]) -> str:
    """Return which pauses those are, and until when they last."""
    return " and ".join(f"the {row.kind} {row.name!r} is paused {_end(row)}" for row in held_by)


def _end(row: Any) -> str:
    if row.until is None:
        return "until it is resumed"
    return f"until {from_row(row.until, row._state.db).isoformat(timespec='seconds')}"
