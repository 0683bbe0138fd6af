"""Background jobs for Django, kept in the project's own database."""

from django_jobs.backoff import Backoff
from django_jobs.calls import Call
from django_jobs.context import Context
from django_jobs.decorators import JobFunction, job
from django_jobs.effects import Once, OutsideCall, once, outside
from django_jobs.exceptions import (
    AtomicBroken,
    DeadlinePassed,
    EffectTimeout,
    EnqueueTimeout,
    IdempotencyConflict,
    InvalidJob,
    InvalidJobType,
    JobDoesNotExist,
    JobsError,
    StateConflict,
    WaitTimeout,
)
from django_jobs.outcomes import Cancel, Fail, Retry, Snooze
from django_jobs.pauses import pause, resume
from django_jobs.scheduled import schedule

__version__ = "0.1.0.dev0"

__all__ = [
    "AtomicBroken",
    "Backoff",
    "Call",
    "Cancel",
    "Context",
    "DeadlinePassed",
    "EffectTimeout",
    "EnqueueTimeout",
    "Fail",
    "IdempotencyConflict",
    "InvalidJob",
    "InvalidJobType",
    "JobDoesNotExist",
    "JobFunction",
    "JobsError",
    "Once",
    "OutsideCall",
    "Retry",
    "Snooze",
    "StateConflict",
    "WaitTimeout",
    "job",
    "once",
    "outside",
    "pause",
    "resume",
    "schedule",
]
