"""What people do to a schedule; each act is logged with who did it and why, once it is true."""

from __future__ import annotations

from dataclasses import replace

from django.db import router, transaction

from django_jobs import log, notify
from django_jobs.engines import engine
from django_jobs.exceptions import InvalidJob
from django_jobs.models import Job, Schedule, ScheduleState
from django_jobs.payload import storable
from django_jobs.queue import told
from django_jobs.queue.new_job import refuse_event_loop, refuse_split_transaction, transaction_elsewhere
from django_jobs.schedules import definition, status
from django_jobs.schedules import log as schedule_log
from django_jobs.schedules.overrides import overrides
from django_jobs.texts import text as _

BY_LIMIT, WHY_LIMIT = 255, 1000


def pause(schedule: Schedule, *, why: str, by: str) -> bool:
    return _enable(schedule, False, why, by)


def resume(schedule: Schedule, *, why: str, by: str) -> bool:
    return _enable(schedule, True, why, by)


def _enable(schedule: Schedule, enabled: bool, why: str, by: str) -> bool:
    alias = router.db_for_write(Schedule, instance=schedule)
    rows = Schedule.objects.using(alias).filter(pk=schedule.pk).exclude(enabled=enabled)
    with transaction.atomic(using=rows.db):
        changed = bool(rows.update(enabled=enabled))
        if changed:
            if not enabled:
                said = {"paused_by": storable(by)[:BY_LIMIT], "paused_why": storable(why)[:WHY_LIMIT]}
                ScheduleState.objects.using(alias).filter(schedule=schedule.pk).update(**said)
            log.when_committed(
                rows.db, schedule_log.schedule_act, schedule.name, "resumed" if enabled else "paused", by, why
            )
    schedule.enabled = enabled
    return changed


def run_now(schedule: Schedule, *, why: str, by: str) -> Job:
    refuse_event_loop("run_now", "await sync_to_async(schedule.run_now)()")
    if schedule.pk is None or schedule._state.adding:
        raise InvalidJob(_("The schedule %r is not stored, so nothing was made; save it first.", schedule.name))
    if wrong := status.fault(schedule):
        words = {"name": schedule.name, "wrong": wrong}
        raise InvalidJob(_("The schedule %(name)r is broken, so nothing was made: %(wrong)s", **words))
    call = definition.call(schedule)
    call = call._replace(terms=replace(call.terms, schedule=schedule.name))
    found = engine(router.db_for_write(Schedule, instance=schedule))
    refuse_split_transaction(transaction_elsewhere(found.alias), found.alias)
    with found.on_working_connection(), transaction.atomic(using=found.alias):
        job = found.insert(call)
        notify.ready_if_due(found, [call])
        if told.enqueues_are_heard():
            told.enqueued(found.alias, [(job.pk, call.terms)])
        log.when_committed(found.alias, schedule_log.schedule_act, schedule.name, f"run now, as job {job.pk},", by, why)
    return job


def take_back(schedule: Schedule, *, why: str, by: str) -> list[str]:
    """Store a schedule as the code says it, and return the fields that were otherwise.

    Raises ValidationError by field when what the code says cannot be used.
    """
    found = overrides(schedule)
    for name, _kept, says in found:
        setattr(schedule, name, says)
    if found:
        alias = router.db_for_write(Schedule, instance=schedule)
        with transaction.atomic(using=alias):
            schedule.save(using=alias)
            log.when_committed(
                alias, schedule_log.schedule_act, schedule.name, "taken back to what the code says", by, why
            )
    return [item.field for item in found]
