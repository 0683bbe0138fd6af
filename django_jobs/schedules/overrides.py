"""What people keep otherwise than the code says, and taking it back."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_jobs.models.schedule import Schedule
from django_jobs.schedules.sync import FIELDS, as_json, overridden


class Override(NamedTuple):
    """One field of a schedule of the code, as JSON; durations are seconds."""

    field: str
    kept: Any
    code: Any


def overrides(schedule: Schedule) -> list[Override]:
    """Return the fields in which a schedule is kept otherwise than the code says; none for one that is not of the code."""
    says = schedule.code
    if not isinstance(says, dict):  # None, or put there by hand
        return []
    kept, names = as_json(schedule), overridden(schedule)
    found = [Override(name, kept[name], says[name]) for name in FIELDS if name in names and name in says]
    return [item for item in found if item.kept != item.code]  # without what overrides another and is the same


def take_back(schedule: Schedule) -> list[str]:
    """Store a schedule as the code says it, and return the fields that were otherwise.

    Raises ValidationError by field when what the code says cannot be used.
    """
    found = overrides(schedule)
    for name, _kept, says in found:
        setattr(schedule, name, says)
    if found:
        schedule.save()
    return [item.field for item in found]
