"""The schedules that are paused, for the page of pauses. They are no pauses of jobs: nothing is made of them meanwhile."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now
from django.http import HttpRequest

from django_jobs.admin import shown
from django_jobs.admin.addresses import address
from django_jobs.admin.nav import sees
from django_jobs.engines import jobs_alias
from django_jobs.models import Schedule

SHOWN = 100


def paused_schedules(request: HttpRequest) -> dict[str, Any] | None:
    """Return a line for each and where all of them are listed, or None for who may not see schedules."""
    if not sees(request, Schedule):
        return None
    # Without what of a row may be unreadable.
    rows = Schedule.objects.using(jobs_alias()).filter(enabled=False).order_by("name").annotate(clock=Now())
    found = list(
        rows.values("pk", "name", "clock", "state__paused_at", "state__paused_by", "state__paused_why")[: SHOWN + 1]
    )
    may_resume = request.user.has_perm("django_jobs.change_schedule")
    return {
        "lines": [_line(row, may_resume) for row in found[:SHOWN]],
        "may_resume": may_resume,
        "has_more": len(found) > SHOWN,
        "url": address("django_jobs_schedule_changelist"),
    }


def _line(row: dict[str, Any], may_resume: bool) -> dict[str, str]:
    return {
        "name": shown.schedule_link(row["pk"], row["name"]),
        "why": row["state__paused_why"] or shown.NOTHING,
        "by": row["state__paused_by"] or shown.NOTHING,
        "since": shown.age(row["state__paused_at"], row["clock"]),
        "resume_url": address("django_jobs_schedule_resume", row["pk"]) if may_resume else "",
    }
