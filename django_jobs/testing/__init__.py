"""For the tests of a project: run its jobs in the test's own process and transaction. See docs/testing.md."""

from __future__ import annotations

from django_jobs.testing.clock import advance, reset_clock
from django_jobs.testing.driver import run_jobs
from django_jobs.testing.effects import assert_takes_effect_once
from django_jobs.testing.faults import WorkerLost, database_away, lease_lost, worker_lost
from django_jobs.testing.immediate import immediate
from django_jobs.testing.ran import Ran
from django_jobs.testing.waiting import assert_enqueued, enqueued

__all__ = [
    "Ran",
    "WorkerLost",
    "advance",
    "assert_enqueued",
    "assert_takes_effect_once",
    "database_away",
    "enqueued",
    "immediate",
    "lease_lost",
    "reset_clock",
    "run_jobs",
    "worker_lost",
]
