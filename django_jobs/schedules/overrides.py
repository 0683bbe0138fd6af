"""What people keep otherwise than the code says."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_jobs.models.schedule import Schedule
from django_jobs.schedules.fields import DURATIONS

FIELDS = (
    "type", "payload", "expression", "every", "timezone", "nonexistent", "ambiguous", "missed", "missed_grace",
    "missed_limit", "missed_window", "overlap", "spread", "queue", "priority", "enabled",
)  # fmt: skip
# Two ways to say one thing: what overrides the one overrides the other.
TOGETHER = ("expression", "every")


class Override(NamedTuple):
    """One field of a schedule of the code, as JSON; durations are seconds."""

    field: str
    kept: Any
    code: Any


def as_json(schedule: Schedule) -> dict[str, Any]:
    """Return what the code can say of a schedule as JSON; durations are seconds."""
    found = {name: getattr(schedule, name) for name in FIELDS}
    for name in DURATIONS:
        found[name] = None if found[name] is None else found[name].total_seconds()
    return found


def overridden(schedule: Schedule) -> list[str]:
    """Return the fields in which a schedule of the code is kept otherwise than the code says."""
    if not isinstance(schedule.code, dict):  # None, or put there by hand
        return []
    now = as_json(schedule)
    kept = [name for name in FIELDS if name in schedule.code and now[name] != schedule.code[name]]
    return sorted({*kept, *TOGETHER}) if not set(kept).isdisjoint(TOGETHER) else kept


def overrides(schedule: Schedule) -> list[Override]:
    """Return the fields in which a schedule is kept otherwise than the code says; none for one that is not of the code."""
    says, kept, names = schedule.code or {}, as_json(schedule), overridden(schedule)
    found = [Override(name, kept[name], says[name]) for name in FIELDS if name in names and name in says]
    return [item for item in found if item.kept != item.code]  # without what overrides another and is the same
