"""What people do to a schedule; each act is logged with who did it and why, once it is true."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from django_jobs import log
from django_jobs.engines import engine
from django_jobs.models import Job
from django_jobs.models.schedule import Schedule
from django_jobs.queue.new_job import refuse_event_loop
from django_jobs.schedules import definition


def pause(schedule: Schedule, *, why: str, by: str) -> bool:
    return _enable(schedule, False, why, by)


def resume(schedule: Schedule, *, why: str, by: str) -> bool:
    return _enable(schedule, True, why, by)


def _enable(schedule: Schedule, enabled: bool, why: str, by: str) -> bool:
    rows = Schedule.objects.using(schedule._state.db).filter(pk=schedule.pk).exclude(enabled=enabled)
    with transaction.atomic(using=rows.db):
        changed = bool(rows.update(enabled=enabled))
        if changed:
            log.when_committed(rows.db, log.schedule_act, schedule.name, "resumed" if enabled else "paused", by, why)
    schedule.enabled = enabled
    return changed


def run_now(schedule: Schedule, *, why: str, by: str) -> Job:
    refuse_event_loop("run_now")
    call = replace(definition.call(schedule), schedule=schedule.name)
    found = engine(schedule._state.db)
    with found.on_working_connection(), transaction.atomic(using=found.alias):
        job = found.insert(call)
        log.when_committed(found.alias, log.schedule_act, schedule.name, f"run now, as job {job.pk},", by, why)
    return job
