"""What may be wrong with a schedule's values, field by field. Nothing here asks the database."""

from __future__ import annotations

from datetime import timedelta

from django_jobs import checked, zones
from django_jobs.cron import BadExpression, Cron
from django_jobs.durations import written
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models.schedule import NAME_LIMIT, Schedule
from django_jobs.outcomes import LONGEST_DELAY
from django_jobs.schedules.faults import Faults
from django_jobs.texts import Text, of
from django_jobs.texts import text as _

MOST_MISSED = 10_000
LONGEST = timedelta(seconds=LONGEST_DELAY)
# The least and the most of each duration.
DURATIONS = {
    "every": (timedelta(seconds=1), LONGEST),
    "missed_grace": (timedelta(0), LONGEST),
    "missed_window": (timedelta(seconds=1), LONGEST),
    "spread": (timedelta(0), LONGEST),
}


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


def name(schedule: Schedule) -> Faults:
    value = schedule.name
    if isinstance(value, str) and not 0 < len(value) <= NAME_LIMIT:
        words = {"name": "name", "value": shown(value), "number": len(value), "most": NAME_LIMIT}
        return {"name": [_("%(name)s is %(value)s of %(number)d characters; give 1 to %(most)d.", **words)]}
    try:
        checked.text(value, "name")
    except (InvalidJob, InvalidJobType) as error:
        return {"name": [of(error)]}
    return {}


def times(schedule: Schedule) -> Faults:
    if schedule.every is not None:
        if schedule.expression:
            every = written(schedule.every) if isinstance(schedule.every, timedelta) else shown(schedule.every)
            text = _(
                "Give a cron expression or an interval (every), and not both: there is %(expression)s and %(every)s.",
                expression=shown(schedule.expression), every=every,
            )  # fmt: skip
            return {"every": [text]}
        return duration("every", schedule.every)
    if not schedule.expression:
        return {"expression": [_("Give a cron expression, as 30 2 * * *, or an interval (every).")]}
    try:
        Cron.parse(schedule.expression)
    except BadExpression as error:
        return {"expression": [of(error)]}
    return {}


def zone(schedule: Schedule) -> Faults:
    try:
        zones.zone(schedule.timezone)
    except zones.BadZone as error:
        return {"timezone": [of(error)]}
    return {}


def durations(schedule: Schedule) -> Faults:
    found: Faults = {}
    for name in ("missed_grace", "missed_window", "spread"):
        if (value := getattr(schedule, name)) is not None:
            found |= duration(name, value)
    return found


def duration(name: str, value: object) -> Faults:
    least, most = DURATIONS[name]
    if isinstance(value, timedelta) and least <= value <= most:
        return {}
    return {name: [duration_said(name, value)]}


def duration_said(name: str, value: object) -> Text:
    words = {"name": name, "value": shown(value), "least": written(DURATIONS[name][0])}
    if isinstance(value, timedelta):
        words["value"] = written(value)
        return _("%(name)s is %(value)s; give %(least)s to ten years.", **words)
    return _("%(name)s is %(value)s; give a timedelta, or seconds, from %(least)s to ten years.", **words)


def spread(schedule: Schedule) -> Faults:
    if not schedule.spread or times(schedule) or duration("spread", schedule.spread):
        return {}
    gap = schedule.every or Cron.parse(schedule.expression).shortest_gap()
    if schedule.spread < gap:
        return {}
    words = {"spread": written(schedule.spread), "less": written(gap)}
    return {
        "spread": [_("spread is %(spread)s; give less than %(less)s, the shortest time between two slots.", **words)]
    }


def limit(schedule: Schedule) -> Faults:
    try:
        checked.whole(schedule.missed_limit, "missed_limit", 1, MOST_MISSED)
    except (InvalidJob, InvalidJobType) as error:
        return {"missed_limit": [of(error)]}
    return {}


def place(schedule: Schedule) -> Faults:
    found: Faults = {}
    try:
        if schedule.queue:
            checked.queue(schedule.queue)
    except (InvalidJob, InvalidJobType) as error:
        found["queue"] = [of(error)]
    try:
        if schedule.priority is not None:
            checked.priority(schedule.priority)
    except (InvalidJob, InvalidJobType) as error:
        found["priority"] = [of(error)]
    return found
