"""A look at schedules for what no `save()` told the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import QuerySet

from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import Clock
from django_jobs.models.schedule import whole_second
from django_jobs.schedules import definition, rows
from django_jobs.zones import BadZone

CHUNK = 1_000


def adopt(alias: str) -> None:
    """Do for schedules that were stored or enabled past `save()`, as by SQL, what it does; their slots begin now."""
    _anchor(alias)
    states = ScheduleState.objects.using(alias)
    states.add_missing()
    asleep = states.filter(wake_at=None, schedule__enabled=True).values_list("pk", flat=True)
    for pk in list(asleep):
        states.filter(pk=pk, wake_at=None).begin_anew()


def _anchor(alias: str) -> None:
    # By no update of ours, which reads what it updates: such a row may be one that cannot be read.
    floating: QuerySet[Schedule] = QuerySet(Schedule, using=alias).filter(anchor=None, every__isnull=False)
    if floating.exists():
        floating.update(anchor=whole_second(alias))


def recompute_stale(alias: str) -> None:
    """Have a tick look at what was computed from other times, or other data of the time zone, than are there now."""
    last = 0
    states = ScheduleState.objects.using(alias).filter(schedule__enabled=True).order_by("pk")
    while part := list(states.filter(pk__gt=last).only("timing", "zone_data", "error")[:CHUNK]):
        schedules = rows.schedules(alias, [state.pk for state in part])
        _wake(alias, [state.pk for state in part if _is_stale(schedules.get(state.pk), state)])
        last = part[-1].pk


def _is_stale(schedule: Schedule | Exception | None, state: ScheduleState) -> bool:
    if not state.timing or state.error or not isinstance(schedule, Schedule):
        return False  # it is looked at anyway
    try:
        now = (definition.timing(schedule), definition.zone_data(schedule))
    except BadZone:
        return True
    return now != (state.timing, state.zone_data)


def _wake(alias: str, ids: Sequence[int]) -> None:
    states = ScheduleState.objects.using(alias)
    with transaction.atomic(using=alias):
        free = list(states.filter(pk__in=ids).select_for_update(skip_locked=True).values_list("pk", flat=True))
        states.filter(pk__in=free).update(wake_at=Clock())
    for pk in set(ids).difference(free):  # one by one: who waits with nothing in hand is in nobody's way
        states.filter(pk=pk).update(wake_at=Clock())
