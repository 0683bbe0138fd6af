"""A look at schedules for what no `save()` told the scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.models.clock import Clock
from django_jobs.models.schedule import Schedule, ScheduleState
from django_jobs.schedules import definition
from django_jobs.zones import BadZone

CHUNK = 1_000


def add_missing(alias: str) -> None:
    """Make the states of schedules that were stored past `save()`, as by SQL."""
    ScheduleState.objects.using(alias).add_missing()


def recompute_stale(alias: str) -> None:
    """Have a tick look at what was computed from other times, or other data of the time zone, than are there now."""
    for part in _parts(alias):
        stale = [schedule.pk for schedule in part if _is_stale(schedule)]
        if stale:
            ScheduleState.objects.using(alias).filter(pk__in=stale).update(wake_at=Clock())


def _parts(alias: str) -> Iterator[list[Schedule]]:
    last = 0
    rows = Schedule.objects.using(alias).filter(enabled=True, state__isnull=False).select_related("state")
    while part := list(rows.filter(pk__gt=last).order_by("pk")[:CHUNK]):
        yield part
        last = part[-1].pk


def _is_stale(schedule: Schedule) -> bool:
    state = schedule.state
    if not state.timing or state.error:
        return False  # it is looked at anyway
    try:
        now = (definition.timing(schedule), definition.zone_data(schedule))
    except BadZone:
        return True
    return now != (state.timing, state.zone_data)
