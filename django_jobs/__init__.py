"""Background jobs for Django, kept in the project's own database."""

from django_jobs.backoff import Backoff
from django_jobs.calls import Call
from django_jobs.context import Context
from django_jobs.decorators import JobFunction, job
from django_jobs.exceptions import (
    AtomicBroken,
    DeadlinePassed,
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
    "EnqueueTimeout",
    "Fail",
    "IdempotencyConflict",
    "InvalidJob",
    "InvalidJobType",
    "JobDoesNotExist",
    "JobFunction",
    "JobsError",
    "Retry",
    "Snooze",
    "StateConflict",
    "WaitTimeout",
    "job",
    "pause",
    "resume",
    "schedule",
]
