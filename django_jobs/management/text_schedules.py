"""The lines in which the commands show what `report_schedules` says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import durations
from django_jobs.management.text import table
from django_jobs.report_schedules import COUNTS
from django_jobs.schedules.status import START

# Schedules that are named below a change of the clock; the others are counted.
MOST_NAMED = 20


def schedules(rows: list[dict[str, Any]], shown_in: str | None, only_in_code: list[str]) -> list[str]:
    if not rows:
        return ["No schedule matches.", *_only_in_code(only_in_code)]
    heads = ("schedule", "when", "zone", f"next ({shown_in})" if shown_in else "next", "last slot", "state")
    head, *lines = table(heads, [cells for row in rows for cells in _cells(row)])
    found = [head]
    for row in rows:
        own = max(len(row["next"]), 1)
        found += [*lines[:own], *(f"    {said}" for said in _remarks(row))]
        del lines[:own]
    return [*found, *_clock_changes(rows), *_only_in_code(only_in_code)]


def _only_in_code(names: list[str]) -> list[str]:
    if not names:
        return []
    return ["", f"In the code, and stored when a scheduler starts ({START}): {', '.join(names)}"]


def _cells(row: dict[str, Any]) -> list[list[str]]:
    first, *others = row["next"] or ["-"]
    return [
        [row["name"], when(row), row["timezone"], first, row["last_slot"] or "-", row["state"]],
        *(["", "", "", later, "", ""] for later in others),
    ]


def when(row: dict[str, Any]) -> str:
    if row["every"] is not None:
        return f"every {durations.written(timedelta(seconds=row['every']))}"
    return row["expression"] or "-"


def _remarks(row: dict[str, Any]) -> list[str]:
    found = [f"{row['state']}: {' '.join(row['reason'].split())}"] if row["reason"] else []
    if row["held_by"] and row["state"] != "held":
        found.append(f"its jobs are held: {row['held_by']}")
    counted = [f"{row[name]} {name}" for name in COUNTS[1:] if row[name]]
    if counted:
        found.append(f"{row['fired']} fired, {', '.join(counted)}")
    if row["due_after"]:
        found.append(f"its jobs are due {row['due_after']:g} s after their slots (spread)")
    if row["overridden"]:
        found.append(f"kept otherwise than the code says: {', '.join(row['overridden'])}")
    return found


def _clock_changes(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of each change once, and below it what becomes of which schedule."""
    changes: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    for row in rows:
        for change in row["clock_changes"]:
            changes.setdefault((change["timezone"], change["at"]), []).append((row["name"], change))
    found = [""] if changes else []
    for _, touched in sorted(changes.items()):
        found.append(_clock_change(touched[0][1]))
        said = [f"    {name}: {_effect(change)}" for name, change in touched if change["count"]]
        found += said[:MOST_NAMED] or ["    none of these has a slot then"]
        if len(said) > MOST_NAMED:
            found.append(f"    and {len(said) - MOST_NAMED} more; name those that you want to see")
    return found


def _clock_change(change: dict[str, Any]) -> str:
    size = _hours(change["seconds"])
    return f"Clock change in {change['timezone']}: {change['direction']} by {size}, {change['from']} -> {change['to']}"


def _hours(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}" + (f":{rest % 60:02d}" if rest % 60 else "")


def _effect(change: dict[str, Any]) -> str:
    readings = [reading.partition(" ")[2] for reading in change["readings"]]
    more = change["count"] - len(readings)
    moved = f" to {change['to'].partition(' ')[2]}" if change["effect"] == "moved" else ""
    return f"{change['effect']}{moved}: {', '.join(readings)}{f' and {more} more' if more else ''}"
