"""The pages for people. Rows of the queue are shown here and acted upon, never edited by a form; schedules are."""

from django_jobs.admin.archive import ArchivedJobAdmin
from django_jobs.admin.bulk import BulkActAdmin
from django_jobs.admin.effects import EffectAdmin
from django_jobs.admin.index_row import OverviewAdmin
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.pauses import PauseAdmin
from django_jobs.admin.schedules import ScheduleAdmin
from django_jobs.admin.workers import WorkerAdmin

__all__ = [
    "ArchivedJobAdmin",
    "BulkActAdmin",
    "EffectAdmin",
    "JobAdmin",
    "OverviewAdmin",
    "PauseAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
