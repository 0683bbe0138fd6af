"""What follows from a schedule's values: its slots, its job, and what is wrong with them. Nothing here asks the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.utils import timezone

from django_jobs import checked, registry
from django_jobs.cron import Cron
from django_jobs.engines import jobs_alias
from django_jobs.engines.values import NewJob
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import TIMING, Schedule
from django_jobs.options import Enqueue
from django_jobs.queue.new_job import new_job
from django_jobs.schedules import fields
from django_jobs.schedules.faults import Faults, refused
from django_jobs.slots import Ambiguous, CronSlots, EverySlots, Nonexistent, Slots
from django_jobs.texts import Text, of
from django_jobs.texts import text as _
from django_jobs.zones import data_of, zone

# Of a time when no rule but the present ones is known.
ANY_TIME = datetime(2100, 1, 1, tzinfo=UTC)
MOST_SLOTS = 10_000


def check_asked(after: object, count: object) -> None:
    if not isinstance(after, datetime):
        raise InvalidJobType(f"after is {shown(after)}; give an aware datetime.")
    if timezone.is_naive(after):
        raise InvalidJob(f"after is {shown(after)} without a time zone; give an aware datetime.")
    checked.whole(count, "count", 0, MOST_SLOTS)


def normalise(schedule: Schedule) -> None:
    """Make durations that were given in seconds what the columns take; refuse what they would take for something else."""
    wrong: dict[str, Text] = {}
    for name in fields.DURATIONS:
        value = getattr(schedule, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                setattr(schedule, name, timedelta(seconds=value))
            except (OverflowError, ValueError):
                wrong[name] = fields.duration_said(name, value)
        elif value is not None and not isinstance(value, str | timedelta):
            wrong[name] = fields.duration_said(name, value)
    if (job_type := getattr(schedule.type, "job_type", None)) is not None:  # the job itself was given
        schedule.type = job_type.name
    schedule.type = getattr(schedule.type, "module_path", schedule.type)  # or a task
    for name in ("priority", "missed_limit"):
        value = getattr(schedule, name)
        if isinstance(value, bool | float):
            wrong[name] = _("%(name)s is %(value)s; give a whole number.", name=name, value=shown(value))
    if wrong:
        raise refused({name: [text] for name, text in wrong.items()})


def faults(schedule: Schedule) -> Faults:
    """Return what is wrong with a schedule's values, by field; empty when it can be used."""
    found: Faults = {}
    for check in (
        fields.name,
        fields.times,
        fields.zone,
        _never,
        fields.durations,
        fields.spread,
        fields.limit,
        fields.place,
        _call,
    ):
        for field, said in check(schedule).items():
            found.setdefault(field, []).extend(said)
    return found


def slots(schedule: Schedule, now: datetime) -> Slots:
    """Return the slots of a schedule; raise ValidationError by field when its times cannot be used.

    One that was not saved counts its interval from the whole second of `now`.
    """
    normalise(schedule)
    wrong = {**fields.times(schedule), **fields.zone(schedule), **fields.choices(schedule)}
    if wrong:
        raise refused(wrong)
    if schedule.every is not None:
        anchor = schedule.anchor and from_row(schedule.anchor, alias_of(schedule))
        return EverySlots(schedule.every, anchor or _utc(now).replace(microsecond=0))
    return CronSlots(
        Cron.parse(schedule.expression),
        zone(schedule.timezone),
        cast(Nonexistent, schedule.nonexistent),
        cast(Ambiguous, schedule.ambiguous),
    )


def check_rules(schedule: Schedule) -> None:
    """Raise ValidationError by field when what is to become of missed slots cannot be used."""
    if wrong := {**fields.durations(schedule), **fields.limit(schedule), **fields.spread(schedule)}:
        raise refused(wrong)


def timing(schedule: Schedule) -> str:
    """Return what decides a schedule's slots as one text, to tell whether it has changed."""
    anchor = schedule.anchor and from_row(schedule.anchor, alias_of(schedule))
    return "|".join(str(anchor if name == "anchor" else getattr(schedule, name)) for name in TIMING)


def zone_data(schedule: Schedule) -> str:
    """Return which data of its time zone this host has; nothing where it has no bearing."""
    return "" if schedule.every is not None else data_of(schedule.timezone)


def call(schedule: Schedule) -> NewJob:
    """Return the job that a schedule makes, without its time; raise InvalidJob or InvalidJobType when it cannot be made."""
    job_type = registry.find(schedule.type)
    if job_type is None:
        raise InvalidJob(_no_type(schedule.type))
    args, kwargs = _arguments(schedule.payload)
    using = Enqueue(
        queue=checked.queue(schedule.queue) if schedule.queue else None,
        priority=None if schedule.priority is None else checked.priority(schedule.priority),
    )
    return new_job(job_type, using, args, kwargs)


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # at an end of the calendar
        return moment.replace(tzinfo=UTC)


def alias_of(schedule: Schedule) -> str:
    """Return which database a schedule's times are of: for one that was not stored, that of the jobs."""
    return schedule._state.db or jobs_alias()


def _never(schedule: Schedule) -> Faults:
    """Refuse times that are all among those that the clock of the zone jumps over."""
    if schedule.every is not None or fields.times(schedule) or fields.zone(schedule) or fields.choices(schedule):
        return {}
    if next(slots(schedule, ANY_TIME).after(ANY_TIME), None) is not None:
        return {}
    text = _(
        "expression is %(value)s, and in %(zone)s the clock jumps over all of its times, which are skipped; give other "
        "times, or nonexistent='after_gap'.",
        value=shown(schedule.expression), zone=schedule.timezone,
    )  # fmt: skip
    return {"expression": [text]}


def _call(schedule: Schedule) -> Faults:
    if registry.find(schedule.type) is None:
        return {"type": [_no_type(schedule.type)]}
    if fields.place(schedule):
        return {}
    try:
        call(schedule)
    except (InvalidJob, InvalidJobType) as error:
        return {"payload": [error.fault or of(error)]}
    return {}


def _no_type(name: object) -> Text:
    return _(
        "type is %s, and no job of that name is known here; `@job` functions in jobs.py of an app are.", shown(name)
    )


def _arguments(payload: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(payload, dict) or payload.keys() != {"args", "kwargs"}:
        raise InvalidJob(_('payload is %s; give {"args": [...], "kwargs": {...}}.', shown(payload)))
    args, kwargs = payload["args"], payload["kwargs"]
    if not isinstance(args, list):
        raise InvalidJob(_("args is %s; give a list.", shown(args)))
    if not isinstance(kwargs, dict):
        raise InvalidJob(_("kwargs is %s; give a dict.", shown(kwargs)))
    return tuple(args), kwargs
