from django_jobs.models.alert import Alert
from django_jobs.models.archived_job import ArchivedJob, find
from django_jobs.models.bulk_act import BulkAct
from django_jobs.models.deployment import Deployment
from django_jobs.models.effect import Effect, EffectQuerySet
from django_jobs.models.job import Job, JobQuerySet
from django_jobs.models.pause import Pause
from django_jobs.models.schedule import Schedule, ScheduleQuerySet
from django_jobs.models.schedule_state import ScheduleState
from django_jobs.models.stat import Stat
from django_jobs.models.stat_total import StatTotal
from django_jobs.models.worker import Worker

__all__ = [
    "Alert",
    "ArchivedJob",
    "BulkAct",
    "Deployment",
    "Effect",
    "EffectQuerySet",
    "Job",
    "JobQuerySet",
    "Pause",
    "Schedule",
    "ScheduleQuerySet",
    "ScheduleState",
    "Stat",
    "StatTotal",
    "Worker",
    "find",
]
