"""Schedules for the admin's tests, and their pages as a client sees them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.urls import reverse

from django_jobs.models import Schedule, ScheduleState
from django_jobs.schedules import code
from django_jobs.schedules.code import CodeSchedule
from django_jobs.schedules.sync import sync
from tests.admin.site import Site
from tests.app.jobs import nothing

LIST, ADD, PREVIEW = (
    "/admin/django_jobs/schedule/",
    "/admin/django_jobs/schedule/add/",
    "/admin/django_jobs/schedule/preview/",
)
BLANK = {
    "name": "nightly",
    "type": nothing.name,
    "args": "",
    "kwargs": "",
    "expression": "30 2 * * *",
    "every": "",
    "timezone": "Europe/Berlin",
    "nonexistent": "after_gap",
    "ambiguous": "first",
    "missed": "latest",
    "missed_grace": "",
    "missed_limit": "100",
    "missed_window": "",
    "overlap": "allow",
    "spread": "",
    "queue": "",
    "priority": "",
    "enabled": "on",
}


def make(site: Site, name: str = "nightly", **values: Any) -> Schedule:
    values = {"type": nothing.name, "expression": "" if "every" in values else "30 2 * * *", **values}
    found = Schedule(name=name, **values)
    found.save(using=site.alias)
    return found


def fresh(schedule: Schedule) -> Schedule:
    found: Schedule = Schedule.objects.using(schedule._state.db).get(pk=schedule.pk)
    return found


def write(schedule: Schedule, **values: Any) -> None:
    """Write a row as a hand in SQL does, past all checks."""
    columns = ", ".join(f'"{name}" = %s' for name in values)
    with connections[str(schedule._state.db)].cursor() as cursor:
        cursor.execute(
            f"UPDATE django_jobs_schedule SET {columns} WHERE id = %s",
            [*values.values(), schedule.pk],
        )


def state(schedule: Schedule, **values: Any) -> None:
    ScheduleState.objects.using(schedule._state.db).filter(pk=schedule.pk).update(**values)


def from_code(site: Site, monkeypatch: pytest.MonkeyPatch, name: str = "nightly", **values: Any) -> Schedule:
    """Return a schedule that a scheduler has stored because the code has it."""
    found = CodeSchedule(name=name, type=nothing.name, values={"expression": "30 2 * * *", **values}, place="here")
    monkeypatch.setattr(code, "_schedules", {**code._schedules, name: found})
    sync(site.alias)
    stored: Schedule = Schedule.objects.using(site.alias).get(name=name)
    return stored


def five(site: Site, monkeypatch: pytest.MonkeyPatch) -> dict[str, Schedule]:
    """Return one schedule in each state."""
    monkeypatch.setattr(code, "_schedules", {})
    found = {
        "ok": make(site, "a ok"),
        "overdue": make(site, "b overdue"),
        "paused": make(site, "c paused", enabled=False),
        "broken": make(site, "d broken"),
        "orphaned": make(site, "e orphaned"),
    }
    state(found["overdue"], next_run_at=Now() - timedelta(minutes=5))
    for name in ("ok", "orphaned"):
        state(found[name], next_run_at=Now() + timedelta(hours=5), wake_at=Now() + timedelta(hours=5))
    write(found["broken"], timezone="Mars")
    write(found["orphaned"], code="{}")
    return found


def page_of(schedule: Schedule) -> str:
    return reverse("admin:django_jobs_schedule_change", args=[schedule.pk])


def page(site: Site, schedule: Schedule) -> Any:
    answer = site.client.get(page_of(schedule))
    assert answer.status_code == 200
    return answer


def save(site: Site, schedule: Schedule, **values: Any) -> Any:
    return site.client.post(page_of(schedule), BLANK | values, follow=True)


def add(site: Site, **values: Any) -> Any:
    return site.client.post(ADD, BLANK | values, follow=True)


def errors(answer: Any) -> dict[str, list[str]]:
    form = answer.context["adminform"].form
    return {name: list(texts) for name, texts in form.errors.items()}


def preview(site: Site, **values: Any) -> Any:
    answer = site.client.post(PREVIEW, BLANK | values)
    assert answer.status_code == 200
    return answer


def act(site: Site, name: str, schedule: Schedule | int, **values: str) -> Any:
    pk = schedule if isinstance(schedule, int) else schedule.pk
    return site.client.post(reverse(f"admin:django_jobs_schedule_{name}", args=[pk]), values, follow=True)


def act_on_list(site: Site, name: str, *schedules: Schedule, **values: str) -> Any:
    chosen = {"action": name, "index": "0", "_selected_action": [str(found.pk) for found in schedules]}
    return site.client.post(LIST, {**chosen, **values}, follow=True)
