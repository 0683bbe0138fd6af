from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import OperationalError
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When, Window

from django_jobs.admin import figures, schedule_list, shown, zoned
from django_jobs.admin.overview.asked import Asked
from django_jobs.models import Schedule
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import UNREADABLE
from django_jobs.schedules import holding, rows, status

SHOWN = 12


def read(asked: Asked) -> dict[str, Any]:
    """Return the schedules that make jobs next, those before them that cannot, and how many there are."""
    first = Case(When(state__error__gt="", then=Value(0)), default=Value(1), output_field=IntegerField())
    next_ones = (
        Schedule.objects.using(asked.alias)
        .annotate(all_of_them=Window(Count("pk")), all_paused=Window(Count("pk", filter=Q(enabled=False))))
        .order_by("-enabled", first, F("state__wake_at").asc(nulls_last=True), "name")[:SHOWN]
    )
    found = _rows(next_ones)
    last: Any = found[0] if found else None
    pauses = holding.pauses(asked.alias) if found else []
    lines = [_line(asked, schedule, pauses) for schedule in found if getattr(schedule, "enabled", True)]
    total, paused = (last.all_of_them, last.all_paused) if last else (0, 0)
    return {
        "lines": lines,
        "total": figures.number(total),
        "paused": figures.number(paused),
        "has_paused": paused,
        "more": figures.number(total - paused - len(lines)) if total - paused > len(lines) else "",
    }


def _rows(chosen: QuerySet[Any]) -> list[Any]:
    try:
        return list(chosen.select_related("state"))
    except OperationalError:
        raise
    except UNREADABLE:  # one of them; the others are shown
        pairs = list(chosen.values("pk", "name", "all_of_them", "all_paused"))
    read = rows.schedules(chosen.db, [pair["pk"] for pair in pairs], "state")
    found: list[Any] = []
    for pair in pairs:
        schedule: Any = read.get(pair["pk"])
        if isinstance(schedule, Exception):
            wrong, schedule = schedule, Schedule(pk=pair["pk"], name=pair["name"])
            schedule.unreadable = status.unreadable(wrong)
        if schedule is not None:
            schedule.all_of_them, schedule.all_paused = pair["all_of_them"], pair["all_paused"]
            found.append(schedule)
    return found


def _line(asked: Asked, schedule: Any, pauses: Sequence[Any]) -> dict[str, Any]:
    condition = schedule_list.condition(schedule, asked.now, pauses)
    state = None if hasattr(schedule, "unreadable") else getattr(schedule, "state", None)
    at = state and (state.next_run_at or state.wake_at)
    due = at and from_row(at, asked.alias)
    return {
        "plain_name": schedule.name,
        "condition": condition.state,
        "name": shown.schedule_link(schedule.pk, schedule.name),
        "type": shown.name(schedule.type) if schedule.type != schedule.name else "",
        "state": schedule_list.badge(condition),
        "reason": schedule_list.why(condition),
        "pauses": schedule_list.pauses_of(asked.request, schedule, pauses),
        "next": zoned.line(due, schedule.timezone, asked.now) if due else shown.NOTHING,
    }
