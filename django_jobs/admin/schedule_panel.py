"""How a schedule is doing, as its page shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import F, OrderBy
from django.db.models.functions import Now
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_jobs import durations, redact
from django_jobs.admin import beside, figures, shown, zoned
from django_jobs.admin.schedule_form import DURATIONS, label
from django_jobs.admin.schedule_list import badge, last_job
from django_jobs.engines import jobs_alias
from django_jobs.models import Job
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import status
from django_jobs.schedules.overrides import Override, overrides

JOBS_SHOWN = 10


def panel(schedule: Any) -> dict[str, Any]:
    """Return what the page says of a stored schedule that `with_condition` has seen to."""
    wrong = "" if schedule.condition.state == "broken" else status.fault(schedule)
    return {
        "badge": badge(schedule.condition),
        "reason": schedule.why,
        "pauses": schedule.pauses,
        "wrong": wrong,
        "facts": list(_facts(schedule)),
        "counters": list(_counters(schedule)),
        "is_of_code": schedule.code is not None,
        "overrides": [
            (label(item.field), _value(item.field, item.kept), _value(item.field, item.code))
            for item in map(partial(_masked, schedule), overrides(schedule))
        ],
    }


def _masked(schedule: Any, item: Override) -> Override:
    if item.field != "payload":
        return item
    of_code = (schedule.code or {}).get("type", schedule.type)
    return item._replace(kept=redact.arguments(schedule.type, item.kept), code=redact.arguments(of_code, item.code))


def _facts(schedule: Any) -> Iterator[tuple[str, str]]:
    held = schedule.held
    if held is None:
        return
    yield _("next"), _moment(schedule, held.next_run_at) if schedule.enabled else shown.NOTHING
    yield _("last slot"), _moment(schedule, held.last_slot)
    yield _("last job"), _last_job(schedule)
    if held.pending_slot:
        yield _("waits"), _pending(schedule)
    yield _("looked at"), _looked(schedule)
    yield _("slots count from"), _moment(schedule, held.changed_at)
    if held.errors:
        yield _("errors in a row"), str(held.errors)


def _moment(schedule: Any, value: datetime | None) -> str:
    return zoned.line(_utc(schedule, value), schedule.timezone, schedule.now)


def _utc(schedule: Any, value: datetime | None) -> datetime | None:
    return None if value is None else from_row(value, schedule._state.db)


def _last_job(schedule: Any) -> str:
    held = schedule.held
    if held.last_job is None:
        return shown.NOTHING
    job = last_job(schedule) if schedule.has_last_job else _("%d, no longer there") % held.last_job
    made = shown.age(_utc(schedule, held.last_fired_at), schedule.now)
    return format_html('{} <span class="quiet nowrap">({})</span>', job, made)


def _pending(schedule: Any) -> str:
    text = _("This slot waits until the job before it has ended.")
    return format_html('{} <span class="quiet">{}</span>', _moment(schedule, schedule.held.pending_slot), text)


def _looked(schedule: Any) -> str:
    held = schedule.held
    if held.looked_at is None:
        return _("by no scheduler yet")
    return format_html(
        '{} <span class="quiet">{}</span>', shown.age(_utc(schedule, held.looked_at), schedule.now), held.looked_by
    )


def _counters(schedule: Any) -> Iterator[tuple[str, str, str]]:
    held = schedule.held
    if held is None:
        return
    yield _("jobs made"), figures.number(held.fired), _("for slots; those of “run now” are not counted")
    yield _("missed"), figures.number(held.missed), _("slots that no scheduler came to in time, run late or dropped")
    yield _("dropped"), figures.number(held.dropped), _("of the missed ones, those that were not run")
    yield _("skipped"), figures.number(held.skipped), _("slots not run because the job before still waited or ran")


def _value(name: str, value: Any) -> str:
    if value is None or value == "":
        return shown.NOTHING
    if name in DURATIONS and isinstance(value, int | float) and not isinstance(value, bool):
        return durations.written(timedelta(seconds=value))
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    field: Any = Schedule._meta.get_field(name)
    if field.choices and isinstance(value, str):
        return str(dict(field.choices).get(value, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _NewestKey(OrderBy):
    """In the order of the index of keys, which is by bytes whatever the database's collation."""

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        # Django looks for the word DESC in what is ordered by.
        return super().as_sql(compiler, connection, template="%(expression)s USING ~>~ /* DESC */")


def recent_jobs(schedule: Any) -> list[dict[str, Any]]:
    """Return the jobs of the newest slots. Other names begin with this one's, hence its own name is asked for as well."""
    name = schedule.name
    rows = Job.objects.using(jobs_alias()).filter(idempotency_key__startswith=f"schedule:{name}:", schedule=name)
    newest = rows.order_by(_NewestKey(F("idempotency_key"), descending=True)).annotate(clock=Now())
    jobs = beside.with_held(newest.defer("payload", "result", "history", "meta", "last_error")[:JOBS_SHOWN])
    return [_job_line(schedule, job) for job in jobs]


def _job_line(schedule: Any, job: Any) -> dict[str, Any]:
    zone = zoned.zone_or_none(schedule.timezone)
    slot = _utc(schedule, job.slot)
    return {
        "job": shown.job_link(job.pk),
        "slot": shown.NOTHING if slot is None else zoned.reading(slot, zone or slot.tzinfo),  # type: ignore[arg-type]
        "state": shown.badge(job, job.clock),
        "ended": shown.age(job.finished_at, job.clock),
    }
