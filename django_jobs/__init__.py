"""Background jobs for Django, kept in the project's own database."""

from django_jobs.backoff import Backoff
from django_jobs.context import Context
from django_jobs.decorators import JobFunction, job
from django_jobs.exceptions import (
    EnqueueTimeout,
    IdempotencyConflict,
    InvalidJob,
    InvalidJobType,
    JobsError,
)
from django_jobs.outcomes import Cancel, Fail, Retry, Snooze

__version__ = "0.1.0.dev0"

__all__ = [
    "Backoff",
    "Cancel",
    "Context",
    "EnqueueTimeout",
    "Fail",
    "IdempotencyConflict",
    "InvalidJob",
    "InvalidJobType",
    "JobFunction",
    "JobsError",
    "Retry",
    "Snooze",
    "job",
]
