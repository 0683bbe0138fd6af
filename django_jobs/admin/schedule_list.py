"""The list of schedules: what it can be narrowed to, and what it shows beside the rows, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_jobs.admin import pausing, shown
from django_jobs.admin.filters import TypeFilter
from django_jobs.engines import jobs_alias
from django_jobs.models import ArchivedJob, Job
from django_jobs.models.clock import database_now, from_row
from django_jobs.models.schedule import UNREADABLE, Schedule
from django_jobs.schedules import holding, status

LABELS = {
    "ok": _("ok"),
    "overdue": _("overdue"),
    "held": _("held"),
    "paused": _("paused"),
    "broken": _("broken"),
    "orphaned": _("orphaned"),
}


class EnabledFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "enabled"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("enabled")), ("no", _("paused"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        if not self.value():
            return queryset
        return queryset.filter(enabled=self.value() == "yes")


class CodeFilter(admin.SimpleListFilter):
    title = _("origin")
    parameter_name = "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("from the code")), ("no", _("made by people"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        if not self.value():
            return queryset
        return queryset.filter(code__isnull=self.value() != "yes")


FILTERS = (EnabledFilter, CodeFilter, TypeFilter)
FILTERED = {str(found.parameter_name) for found in FILTERS}


class ScheduleChangeList(ChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = _read(self.result_list, self.queryset)
        self.result_list = with_condition(rows, request, may_see_jobs(self.model_admin.admin_site, request))
        self.full_result_count = self.result_count  # else the search says a number that may be the limit


def _read(page: Any, rows: QuerySet[Schedule]) -> list[Schedule]:
    """Return the schedules of a page; of one whose row cannot even be read, what is known of it and why it cannot."""
    try:
        return list(page)
    except UNREADABLE:
        return [_read_one(rows, pk, name) for pk, name in page.values_list("pk", "name")]


def _read_one(rows: QuerySet[Schedule], pk: int, name: str) -> Any:
    try:
        return rows.get(pk=pk)
    except UNREADABLE as error:
        found: Any = Schedule(pk=pk, name=name)
        found._state.db, found._state.adding = jobs_alias(), False
        found.clock = database_now(jobs_alias())
        found.unreadable = status.unreadable(error)
        return found


def may_see_jobs(site: admin.AdminSite, request: HttpRequest) -> bool:
    return bool(site.get_model_admin(Job).has_view_permission(request))


def with_condition(schedules: Iterable[Any], request: HttpRequest, sees_jobs: bool) -> list[Any]:
    """Return the schedules, each with `now`, its `condition` and `why`, the `pauses` that hold its jobs, its state row as
    `held` and whether its last job is there.

    `sees_jobs` is whether they are for somebody who may.
    """
    found = list(schedules)
    pauses = holding.pauses(jobs_alias()) if found else []
    for schedule in found:
        schedule.now = from_row(schedule.clock, schedule._state.db)
        schedule.condition = condition(schedule, schedule.now, pauses)
        schedule.why = why(schedule.condition)
        schedule.pauses = pauses_of(request, schedule, pauses)
        schedule.held = getattr(schedule, "state", None)
        schedule.sees_jobs = sees_jobs
    ids = [schedule.held.last_job for schedule in found if schedule.held and schedule.held.last_job]
    there = set(Job.objects.using(jobs_alias()).filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()
    if missing := set(ids) - there:
        there |= set(ArchivedJob.objects.using(jobs_alias()).filter(pk__in=missing).values_list("pk", flat=True))
    for schedule in found:
        schedule.has_last_job = bool(schedule.held) and schedule.held.last_job in there
    return found


def condition(schedule: Any, now: datetime, pauses: Sequence[Any]) -> status.Condition:
    unreadable: status.Condition | None = getattr(schedule, "unreadable", None)
    return unreadable or status.condition(schedule, now, pauses)


def why(found: status.Condition) -> str:
    """Return why a schedule is in its state; which pauses there are of its jobs is said apart."""
    if found.state == "held":
        return str(_("Its jobs are made, and wait."))
    if found.state == "ok" and found.reason:
        return str(_("The pause ends before its next run, and touches none."))
    return found.reason


def pauses_of(request: HttpRequest, schedule: Schedule, pauses: Sequence[Any]) -> str:
    """Return which pauses hold the jobs of a schedule, whatever its own state is; empty for none."""
    held_by = holding.holding(schedule, pauses)
    return pausing.holding(request, held_by) if held_by else ""


def last_job(schedule: Any) -> str:
    """Return the id of the last job, as a link for who may see jobs."""
    pk = schedule.held.last_job
    return shown.job_link(pk) if schedule.sees_jobs else str(pk)


def badge(condition: status.Condition) -> str:
    return format_html('<span class="dj-state dj-state-{}">{}</span>', condition.state, LABELS[condition.state])
