"""Reading the rows of many schedules, one of which may be such that it cannot even be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connections

from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import Clock
from django_jobs.models.schedule import UNREADABLE

T = TypeVar("T")


def schedules(alias: str, ids: Sequence[int], *related: str) -> dict[int, Schedule | Exception]:
    """Return those that are there, by id; of one that cannot be read, the error."""
    rows = Schedule.objects.using(alias)
    if related:
        rows = rows.select_related(*related)
    return _read(alias, ids, rows.in_bulk)


def states(alias: str, ids: Sequence[int]) -> dict[int, ScheduleState | Exception]:
    """Return the states that are there, each with the time as `clock`, by id; of one that cannot be read, the error."""
    return _read(alias, ids, ScheduleState.objects.using(alias).annotate(clock=Clock()).in_bulk)


def _read(alias: str, ids: Sequence[int], read: Callable[[Sequence[int]], dict[Any, T]]) -> dict[int, T | Exception]:
    try:
        return {**read(ids)}
    except UNREADABLE:
        if not connections[alias].is_usable():
            raise
    found: dict[int, T | Exception] = {}
    for pk in ids:
        try:
            found |= read([pk])
        except UNREADABLE as error:
            found[pk] = error
    return found
