"""The list and the page of schedules. The page is a form of the definition; what the scheduler keeps is only shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import durations
from django_jobs.admin import figures, schedule_panel, schedule_preview, shown, zoned
from django_jobs.admin.addresses import address
from django_jobs.admin.nav import may_pause
from django_jobs.admin.schedule_acts import ScheduleActsAdmin
from django_jobs.admin.schedule_form import DURATIONS, ScheduleForm, label, masked_parts
from django_jobs.admin.schedule_list import (
    FILTERED,
    FILTERS,
    ScheduleChangeList,
    badge,
    last_job,
    may_see_jobs,
    with_condition,
)
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.engines import jobs_alias
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import UNREADABLE, Schedule
from django_jobs.schedules import rows, status
from django_jobs.texts import translated

WHEN = gettext_lazy("When")
FIELDSETS: list[tuple[Any, tuple[str, ...]]] = [
    (gettext_lazy("What"), ("name", "type", "args", "kwargs")),
    (WHEN, ("expression", "every", "timezone", "nonexistent", "ambiguous")),
    (
        gettext_lazy("When it is late, or the one before still runs"),
        ("missed", "missed_grace", "missed_limit", "missed_window", "overlap", "spread"),
    ),
    (gettext_lazy("Where"), ("queue", "priority")),
    # Only of a new one: a page that was opened before somebody paused it would resume it.
    (gettext_lazy("On or off"), ("enabled",)),
]


def _read_only(name: str) -> Callable[[Any, Schedule], str]:
    """Return how a duration is shown to who may not change it."""

    @admin.display(description=label(name))
    def found(self: Any, schedule: Schedule) -> str:
        value = getattr(schedule, name)
        return shown.NOTHING if value is None else durations.written(value)

    return found


def _times(schedule: Schedule) -> str:
    if schedule.every is None:
        return format_html('<span class="dj-call">{}</span>', schedule.expression)
    return _("every %s") % durations.spelled(schedule.every).translated()


def _time(schedule: Any, word: str, value: datetime | None, job: str = "") -> str:
    at = None if value is None else from_row(value, schedule._state.db)
    return format_html(
        '<div class="dj-time"><span class="quiet dj-small">{}</span> {} <span class="dj-small">{}</span></div>',
        word,
        zoned.line(at, schedule.timezone, schedule.now),
        job,
    )


@admin.register(Schedule)
class ScheduleAdmin(ScheduleActsAdmin):
    form = ScheduleForm
    list_display = ("what", "condition", "times")
    list_display_links = None
    list_filter = FILTERS
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("A part of the name.")
    has_add_permission = admin.ModelAdmin.has_add_permission
    has_change_permission = admin.ModelAdmin.has_change_permission
    has_delete_permission = admin.ModelAdmin.has_delete_permission

    class Media:
        js = ["django_jobs/schedule.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("state")

    # The list.

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ScheduleChangeList]:
        return ScheduleChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in FILTERED  # others could ask for a look into arguments

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Schedules"), **(extra_context or {})})

    @admin.display(description=gettext_lazy("name, what it runs, and when"), ordering="name")
    def what(self, schedule: Schedule) -> str:
        return format_html(
            '{}<div class="quiet dj-small">{}</div><div class="dj-times">{} <span class="quiet dj-small">{}</span></div>{}',
            shown.schedule_link(schedule.pk, schedule.name),
            shown.name(schedule.type) if schedule.type != schedule.name else _("the job of that name"),
            _times(schedule),
            schedule.timezone,
            format_html('<div class="quiet dj-small">{}</div>', _("from the code"))
            if schedule.code is not None
            else "",
        )

    @admin.display(description=gettext_lazy("state"))
    def condition(self, schedule: Any) -> str:
        why = schedule.why
        small = format_html('<div class="dj-reason" title="{}">{}</div>', why, why) if why else ""
        held = format_html('<div class="dj-reason dj-whole">{}</div>', schedule.pauses) if schedule.pauses else ""
        return format_html("{}{}{}", badge(schedule.condition), small, held)

    @admin.display(description=gettext_lazy("next and last"))
    def times(self, schedule: Any) -> str:
        held = schedule.held
        if held is None:
            return shown.NOTHING
        numbers = ((_("missed"), held.missed), (_("skipped"), held.skipped), (_("dropped"), held.dropped))
        counts = format_html_join(", ", "{} {}", ((word, figures.number(number)) for word, number in numbers if number))
        job = format_html("{} {}", _("job"), last_job(schedule)) if schedule.has_last_job else ""
        return format_html(
            "{}{}{}",
            _time(schedule, _("next"), held.next_run_at if schedule.enabled else None),
            _time(schedule, _("last"), held.last_fired_slot, job),
            format_html('<div class="dj-small dj-counts">{}</div>', counts) if counts else "",
        )

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        # Without the row of the scheduler's own, which nobody knows of.
        names = [self._deleted(schedule) for schedule in objs]
        forbidden = set() if self.has_delete_permission(request) else {self.opts.verbose_name}
        return names, {self.opts.verbose_name_plural: len(names)}, forbidden, []

    def _deleted(self, schedule: Schedule) -> str:
        if schedule.code is None:
            return schedule.name
        return _("%s, which is made anew when a scheduler starts whose code has it") % schedule.name

    # A schedule's page.

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().change_view(request, object_id, *args, **kwargs)
        except UNREADABLE:
            error = rows.schedules(jobs_alias(), [int(object_id)], "state").get(int(object_id))
            if not isinstance(error, Exception):
                raise
            messages.error(request, translated(status.unreadable(error).reason))
            return HttpResponseRedirect(address("django_jobs_schedule_changelist"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        edits = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        return [
            (title, {"fields": tuple(name if edits or name not in DURATIONS else f"{name}_" for name in names)})
            for title, names in (FIELDSETS[:-1] if obj else FIELDSETS)
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()

    # For who may not change them.

    every_ = _read_only("every")
    missed_grace_ = _read_only("missed_grace")
    missed_window_ = _read_only("missed_window")
    spread_ = _read_only("spread")

    @admin.display(description=gettext_lazy("positional arguments"))
    def args(self, schedule: Schedule) -> str:
        return shown.as_json(masked_parts(schedule)["args"])

    @admin.display(description=gettext_lazy("keyword arguments"))
    def kwargs(self, schedule: Schedule) -> str:
        return shown.as_json(masked_parts(schedule)["kwargs"])

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], add: Any = False, *args: Any, **kwargs: Any
    ) -> Any:
        form = context["adminform"].form
        context["preview"] = schedule_preview.preview(form)
        context["preview_after"] = WHEN
        if add:
            context |= {"title": _("Add a schedule"), "preview_url": address("django_jobs_schedule_preview")}
        else:
            context |= self._of_stored(request, form.instance.pk)
        return super().render_change_form(request, context, add, *args, **kwargs)

    def _of_stored(self, request: HttpRequest, pk: int) -> dict[str, Any]:
        """Return what the page says of the row, whatever a form that was sent would make of it."""
        sees_jobs = may_see_jobs(self.admin_site, request)
        (schedule,) = with_condition(self.get_queryset(request).filter(pk=pk), request, sees_jobs)
        may_change = self.has_change_permission(request, schedule)
        return {
            "title": _("Schedule %s") % schedule,
            "subtitle": None,
            "stored": schedule,
            "panel": schedule_panel.panel(schedule),
            "jobs": schedule_panel.recent_jobs(schedule) if sees_jobs else None,
            "may_change": may_change,
            "may_run": self.has_run_permission(request),
            "may_pause": may_pause(request),
            "why_limit": WHY_LIMIT,
            "preview_url": address("django_jobs_schedule_preview", pk),
        }

    # The preview of a form that is being edited.

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.preview_view)
        name = "django_jobs_schedule_preview"
        return [
            path("preview/", view, name=name),
            path("<int:schedule_id>/preview/", view, name=name),
            *super().get_urls(),
        ]

    def preview_view(self, request: HttpRequest, schedule_id: int | None = None) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_view_permission(request) or (schedule_id is None and self.has_add_permission(request))):
            raise PermissionDenied
        schedule = self._asked_for(request, schedule_id)
        form = ScheduleForm(request.POST, instance=schedule)
        context = {"preview": schedule_preview.preview(form)}
        return HttpResponse(render_to_string(schedule_preview.TEMPLATE, context, request))

    def _asked_for(self, request: HttpRequest, pk: int | None) -> Schedule | None:
        if pk is None:
            return None
        schedule: Schedule | None = self.get_object(request, str(pk))
        if schedule is None:
            raise Http404
        return schedule
