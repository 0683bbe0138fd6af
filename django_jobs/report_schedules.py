"""What the commands say about schedules, as data: plain values that become JSON or lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

from django_jobs.engines import jobs_alias
from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import database_now, from_row
from django_jobs.schedules import code, holding, rows, status
from django_jobs.schedules.definition import alias_of
from django_jobs.schedules.firing import offset
from django_jobs.schedules.overrides import overrides
from django_jobs.slots import Touched
from django_jobs.zones import BadZone, Change, shifted, zone

COUNTS = ("fired", "missed", "skipped", "dropped")
CHUNK = 1_000
# Of those nothing is made.
IDLE = ("paused", "broken")


def schedules(
    *,
    ids: Sequence[int] | None = None,
    state: str | None = None,
    count: int = 1,
    shown_in: ZoneInfo | None = None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return schedules by name, at most `limit`, each with its next `count` slots, in its own zone unless told another."""
    alias = jobs_alias()
    now, pauses = database_now(alias), holding.pauses(alias)
    found: list[dict[str, Any]] = []
    for name, schedule in _read(alias, ids):
        broken = isinstance(schedule, Exception)
        condition = status.unreadable(schedule) if broken else status.condition(schedule, now, pauses)
        if state not in (None, condition.state):
            continue
        if len(found) == limit:
            break
        # Of one that is ok a pause ends before its next run, which its reason says.
        held_by = "" if broken or condition.state == "ok" else holding.said(holding.holding(schedule, pauses))
        row = _unreadable(name, condition) if broken else _row(schedule, condition, now, count, shown_in)
        found.append({**row, "held_by": held_by})
    return found


def _read(alias: str, ids: Sequence[int] | None) -> Iterator[tuple[str, Any]]:
    """Yield names and schedules by name; the error instead of one whose row cannot even be read."""
    chosen = Schedule.objects.using(alias).order_by("name")
    if ids is not None:
        chosen = chosen.filter(pk__in=ids)
    names = list(chosen.values_list("pk", "name"))
    for start in range(0, len(names), CHUNK):
        part = names[start : start + CHUNK]
        found = rows.schedules(alias, [pk for pk, _name in part], "state")
        yield from ((name, found[pk]) for pk, name in part if pk in found)


def only_in_code() -> list[str]:
    """Return the names of the schedules in the code that no scheduler has stored yet."""
    there = Schedule.objects.using(jobs_alias()).values_list("name", flat=True)
    in_code = [found.name for found in code.schedules()]
    return sorted(set(in_code).difference(there.filter(name__in=in_code)))


def named(names: Sequence[str]) -> dict[str, Schedule]:
    """Return those of the schedules of these names that there are, of each row no more read than that."""
    rows = Schedule.objects.using(jobs_alias()).filter(name__in=names).only("name")
    return {found.name: found for found in rows}


def _row(
    schedule: Schedule, condition: status.Condition, now: datetime, count: int, shown_in: ZoneInfo | None
) -> dict[str, Any]:
    clock = shown_in or _zone(schedule)
    preview = None if condition.state in IDLE else _preview(schedule, now, count)
    state: ScheduleState | None = getattr(schedule, "state", None)
    last_slot = state and state.last_slot and from_row(state.last_slot, alias_of(schedule))
    return {
        "name": schedule.name,
        "type": schedule.type,
        "expression": schedule.expression or None,
        "every": None if schedule.every is None else schedule.every.total_seconds(),
        "timezone": schedule.timezone,
        "state": condition.state,
        "reason": condition.reason,
        "next": [] if preview is None else [_text(slot.at, clock) for slot in preview.slots],
        "last_slot": last_slot and _text(last_slot, clock),
        "last_job": state and state.last_job,
        **{name: getattr(state, name) if state else 0 for name in COUNTS},
        "spread": None if schedule.spread is None else schedule.spread.total_seconds(),
        "due_after": offset(schedule).total_seconds(),
        "overridden": [found.field for found in overrides(schedule)],
        "clock_changes": [] if preview is None else list(_changes(schedule, preview)),
    }


def _unreadable(name: str, condition: status.Condition) -> dict[str, Any]:
    texts = dict.fromkeys(("type", "expression", "timezone"), "")
    nothing = dict.fromkeys(("every", "last_slot", "last_job", "spread"))
    lists: dict[str, list[Any]] = {"next": [], "overridden": [], "clock_changes": []}
    counts = dict.fromkeys((*COUNTS, "due_after"), 0)
    return {"name": name, "state": condition.state, "reason": condition.reason, **texts, **nothing, **lists, **counts}


def _preview(schedule: Schedule, now: datetime, count: int) -> status.Preview | None:
    try:
        return status.preview(schedule, now, count)
    except ValidationError:
        return None


def _zone(schedule: Schedule) -> ZoneInfo:
    try:
        return zone(schedule.timezone)
    except BadZone:
        return ZoneInfo("UTC")


def _changes(schedule: Schedule, preview: status.Preview) -> Iterator[dict[str, Any]]:
    """Yield the changes of the zone's clock that touch a schedule, or that come before the last slot that is shown."""
    end = preview.slots[-1].at if preview.slots else datetime.min.replace(tzinfo=UTC)
    for change, touched in preview.changes:
        if touched.count or change.at <= end:
            yield _change(schedule.timezone, change, touched)


def _change(name: str, change: Change, touched: Touched) -> dict[str, Any]:
    return {
        "timezone": name,
        "at": change.at.isoformat(timespec="seconds"),
        "from": _reading(change.at, change.before),
        "to": _reading(change.at, change.after),
        "direction": "forward" if change.is_gap else "back",
        "seconds": abs((change.after - change.before).total_seconds()),
        "effect": touched.effect,
        "readings": [reading.isoformat(sep=" ", timespec="minutes") for reading in touched.examples],
        "count": touched.count,
    }


def _reading(instant: datetime, offset: timedelta) -> str:
    """Return what a clock of this offset shows at an instant."""
    return shifted(instant.replace(tzinfo=None), offset).isoformat(sep=" ", timespec="minutes")


def _text(moment: datetime, clock: ZoneInfo) -> str:
    try:
        return moment.astimezone(clock).isoformat(timespec="seconds")
    except OverflowError:  # at the end of the calendar
        return moment.isoformat(timespec="seconds")
