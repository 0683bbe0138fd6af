"""The jobs that schedules make."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django_jobs.engines.values import NewJob
from django_jobs.models.schedule import Schedule


def key(name: str, slot: datetime) -> str:
    """Return the idempotency key of a slot; the end is of one shape, so that no name makes another's key."""
    return f"schedule:{name}:{slot.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"


def job_of(schedule: Schedule, call: NewJob, slot: datetime, late: bool) -> NewJob:
    """Return the job of a slot. One that comes late is due now."""
    run_at = None if late else slot + offset(schedule)
    terms = replace(call.terms, schedule=schedule.name, slot=slot, run_at=run_at)
    return NewJob(terms, call.payload, key(schedule.name, slot))


def offset(schedule: Schedule) -> timedelta:
    """Return how long after its slots a schedule's jobs are due: always the same, so that their order stays."""
    if not schedule.spread:
        return timedelta(0)
    number = int.from_bytes(hashlib.sha256(schedule.name.encode()).digest()[:8])
    milliseconds = int(schedule.spread / timedelta(milliseconds=1))
    return timedelta(milliseconds=number % max(milliseconds, 1))
