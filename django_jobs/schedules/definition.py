"""What may be wrong with a schedule's values, and what follows from them. Nothing here asks the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from django.utils import timezone

from django_jobs import durations, options, registry
from django_jobs.cron import BadExpression, Cron
from django_jobs.engines import jobs_alias
from django_jobs.engines.values import NewJob
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import NAME_LIMIT, TIMING, Schedule
from django_jobs.options import Enqueue
from django_jobs.outcomes import LONGEST_DELAY
from django_jobs.queue.new_job import new_job
from django_jobs.schedules.faults import Faults, refused
from django_jobs.slots import Ambiguous, CronSlots, EverySlots, Nonexistent
from django_jobs.texts import Text, of
from django_jobs.texts import text as _
from django_jobs.zones import BadZone, data_of, zone

if TYPE_CHECKING:
    from django_jobs.schedules.faults import Faults, refused
from django_jobs.slots import Slots

# Of a time when no rule but the present ones is known.
ANY_TIME = datetime(2100, 1, 1, tzinfo=UTC)
MOST_SLOTS = 10_000
MOST_MISSED = 10_000
LONGEST = timedelta(seconds=LONGEST_DELAY)
# The least and the most of each duration.
DURATIONS = {
    "every": (timedelta(seconds=1), LONGEST),
    "missed_grace": (timedelta(0), LONGEST),
    "missed_window": (timedelta(seconds=1), LONGEST),
    "spread": (timedelta(0), LONGEST),
}


def check_asked(after: object, count: object) -> None:
    if not isinstance(after, datetime):
        raise InvalidJobType(f"after is {shown(after)}; give an aware datetime.")
    if timezone.is_naive(after):
        raise InvalidJob(f"after is {shown(after)} without a time zone; give an aware datetime.")
    options.whole(count, "count", 0, MOST_SLOTS)


def normalise(schedule: Schedule) -> None:
    """Make durations that were given in seconds what the columns take; refuse what they would take for something else."""
    wrong: dict[str, Text] = {}
    for name in DURATIONS:
        value = getattr(schedule, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                setattr(schedule, name, timedelta(seconds=value))
            except (OverflowError, ValueError):
                wrong[name] = _duration_said(name, value)
        elif value is not None and not isinstance(value, str | timedelta):
            wrong[name] = _duration_said(name, value)
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
    for check in (_name, _times, _zone, _never, _durations, _spread, _limit, _place, _call):
        for field, said in check(schedule).items():
            found.setdefault(field, []).extend(said)
    return found


def choices(schedule: Schedule) -> Faults:
    """Return which of a schedule's words are none of those that there are, by field."""
    found: Faults = {}
    for name, words in (
        ("nonexistent", Schedule.Nonexistent),
        ("ambiguous", Schedule.Ambiguous),
        ("missed", Schedule.Missed),
        ("overlap", Schedule.Overlap),
    ):
        value = getattr(schedule, name)
        if value not in words.values:
            known = ", ".join(map(repr, words.values))
            found[name] = [
                _("%(name)s is %(value)s; give one of %(known)s.", name=name, value=shown(value), known=known)
            ]
    return found


def slots(schedule: Schedule, now: datetime) -> Slots:
    """Return the slots of a schedule; raise ValidationError by field when its times cannot be used.

    One that was not saved counts its interval from the whole second of `now`.
    """
    normalise(schedule)
    wrong = {**_times(schedule), **_zone(schedule), **choices(schedule)}
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
    if wrong := {**_durations(schedule), **_limit(schedule), **_spread(schedule)}:
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
        queue=options.queue(schedule.queue) if schedule.queue else None,
        priority=None if schedule.priority is None else options.priority(schedule.priority),
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


def _name(schedule: Schedule) -> Faults:
    name = schedule.name
    if isinstance(name, str) and not 0 < len(name) <= NAME_LIMIT:
        words = {"name": "name", "value": shown(name), "number": len(name), "most": NAME_LIMIT}
        return {"name": [_("%(name)s is %(value)s of %(number)d characters; give 1 to %(most)d.", **words)]}
    try:
        options.text(name, "name")
    except (InvalidJob, InvalidJobType) as error:
        return {"name": [of(error)]}
    return {}


def _times(schedule: Schedule) -> Faults:
    if schedule.every is not None:
        if schedule.expression:
            every = (
                durations.written(schedule.every) if isinstance(schedule.every, timedelta) else shown(schedule.every)
            )
            text = _(
                "Give a cron expression or an interval (every), and not both: there is %(expression)s and %(every)s.",
                expression=shown(schedule.expression), every=every,
            )  # fmt: skip
            return {"every": [text]}
        return _duration("every", schedule.every)
    if not schedule.expression:
        return {"expression": [_("Give a cron expression, as 30 2 * * *, or an interval (every).")]}
    try:
        Cron.parse(schedule.expression)
    except BadExpression as error:
        return {"expression": [of(error)]}
    return {}


def _zone(schedule: Schedule) -> Faults:
    try:
        zone(schedule.timezone)
    except BadZone as error:
        return {"timezone": [of(error)]}
    return {}


def _never(schedule: Schedule) -> Faults:
    """Refuse times that are all among those that the clock of the zone jumps over."""
    if schedule.every is not None or _times(schedule) or _zone(schedule) or choices(schedule):
        return {}
    if next(slots(schedule, ANY_TIME).after(ANY_TIME), None) is not None:
        return {}
    text = _(
        "expression is %(value)s, and in %(zone)s the clock jumps over all of its times, which are skipped; give other "
        "times, or nonexistent='after_gap'.",
        value=shown(schedule.expression), zone=schedule.timezone,
    )  # fmt: skip
    return {"expression": [text]}


def _durations(schedule: Schedule) -> Faults:
    found: Faults = {}
    for name in ("missed_grace", "missed_window", "spread"):
        if (value := getattr(schedule, name)) is not None:
            found |= _duration(name, value)
    return found


def _duration(name: str, value: object) -> Faults:
    least, most = DURATIONS[name]
    if isinstance(value, timedelta) and least <= value <= most:
        return {}
    return {name: [_duration_said(name, value)]}


def _duration_said(name: str, value: object) -> Text:
    words = {"name": name, "value": shown(value), "least": durations.written(DURATIONS[name][0])}
    if isinstance(value, timedelta):
        words["value"] = durations.written(value)
        return _("%(name)s is %(value)s; give %(least)s to ten years.", **words)
    return _("%(name)s is %(value)s; give a timedelta, or seconds, from %(least)s to ten years.", **words)


def _spread(schedule: Schedule) -> Faults:
    if not schedule.spread or _times(schedule) or _duration("spread", schedule.spread):
        return {}
    gap = schedule.every or Cron.parse(schedule.expression).shortest_gap()
    if schedule.spread < gap:
        return {}
    words = {"spread": durations.written(schedule.spread), "less": durations.written(gap)}
    return {
        "spread": [_("spread is %(spread)s; give less than %(less)s, the shortest time between two slots.", **words)]
    }


def _limit(schedule: Schedule) -> Faults:
    try:
        options.whole(schedule.missed_limit, "missed_limit", 1, MOST_MISSED)
    except (InvalidJob, InvalidJobType) as error:
        return {"missed_limit": [of(error)]}
    return {}


def _place(schedule: Schedule) -> Faults:
    found: Faults = {}
    try:
        if schedule.queue:
            options.queue(schedule.queue)
    except (InvalidJob, InvalidJobType) as error:
        found["queue"] = [of(error)]
    try:
        if schedule.priority is not None:
            options.priority(schedule.priority)
    except (InvalidJob, InvalidJobType) as error:
        found["priority"] = [of(error)]
    return found


def _call(schedule: Schedule) -> Faults:
    if registry.find(schedule.type) is None:
        return {"type": [_no_type(schedule.type)]}
    if _place(schedule):
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
