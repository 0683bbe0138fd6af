"""Pause, resume, run now and take back, on the list and on a schedule's page, each recorded with its why."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import pausing, shown
from django_jobs.admin.addresses import address
from django_jobs.admin.nav import may_pause
from django_jobs.admin.schedule_form import label
from django_jobs.admin.why import WhyAdmin, recorded, ticked, why_of
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import JobsError
from django_jobs.models import Pause
from django_jobs.models.schedule import UNREADABLE, Schedule
from django_jobs.queue.sought import numbered
from django_jobs.schedules import holding, operate, status
from django_jobs.schedules.faults import said
from django_jobs.texts import translated

# What the log keeps of an act, and what is said of it.
Did = tuple[Callable[[], str], str]
ACTS = ("pause", "resume", "run", "as_code")


class NothingToDo(Exception):
    """A schedule is as it was asked to be, and that is said."""


class Refused(Exception):
    """An act cannot be done, with the reason."""


class ScheduleActsAdmin(WhyAdmin):
    actions = ["pause", "resume", "run", "delete_selected"]

    def has_run_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "run")

    def may_act(self, request: HttpRequest, act: str) -> bool:
        return self.has_run_permission(request) if act == "run" else self.has_change_permission(request)

    # On the list.

    @admin.action(description=gettext_lazy("Pause selected %(verbose_name_plural)s"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._on_list(request, "pause")

    @admin.action(description=gettext_lazy("Resume selected schedules"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._on_list(request, "resume")

    @admin.action(description=gettext_lazy("Run selected %(verbose_name_plural)s now"), permissions=["run"])
    def run(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._on_list(request, "run")

    def _on_list(self, request: HttpRequest, act: str) -> None:
        """Take the rows as they were ticked: by now some may be in another state than the list is filtered for."""
        if request.POST.get("select_across", "0") not in ("", "0"):
            messages.error(request, _("Tick the schedules: what a filter finds may be very many."))
            return
        self._carry_out(request, act, ticked(request))

    @admin.action(description=gettext_lazy("Delete selected %(verbose_name_plural)s"), permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse | None:
        # With no more of them read than is shown: it must be possible for one that cannot be read.
        return delete_selected(self, request, queryset.select_related(None).only("name", "code"))

    # On a schedule's page.

    def get_urls(self) -> list[URLPattern]:
        def at(act: str) -> URLPattern:
            view = self.admin_site.admin_view(self.act_view)
            return path(f"<int:schedule_id>/{act}/", view, {"act": act}, name=f"django_jobs_schedule_{act}")

        view = self.admin_site.admin_view(self.pause_type_view)
        pause_type = path("<int:schedule_id>/pause-type/", view, name="django_jobs_schedule_pause_type")
        return [*(at(act) for act in ACTS), pause_type, *super().get_urls()]

    def act_view(self, request: HttpRequest, schedule_id: int, act: str) -> HttpResponse:
        if not self.may_act(request, act):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._carry_out(request, act, numbered(str(schedule_id)))
        return HttpResponseRedirect(pausing.back_to(request, address("django_jobs_schedule_change", schedule_id)))

    def pause_type_view(self, request: HttpRequest, schedule_id: int) -> HttpResponse:
        """Go on to the form that pauses its type, and take along the why that was written."""
        if not (may_pause(request) and self.has_view_permission(request)):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        page = address("django_jobs_schedule_change", schedule_id)
        for pk in numbered(str(schedule_id)):
            for type_ in Schedule.objects.using(jobs_alias()).filter(pk=pk).values_list("type", flat=True):
                page = pausing.form_address(Pause.Kind.TYPE, type_, page, why_of(request))
        return HttpResponseRedirect(page)

    # Both.

    def _carry_out(self, request: HttpRequest, act: str, ids: list[int]) -> None:
        """Do it to one schedule after the other, and say of each what became of it."""
        why = why_of(request)
        for pk in ids:
            try:
                messages.success(request, self._act(request, act, pk, why))
            except NothingToDo as error:
                messages.info(request, str(error))
            except Refused as error:
                messages.error(request, str(error))

    def _act(self, request: HttpRequest, act: str, pk: int, why: str) -> str:
        """Act upon one schedule; where they share a database, its record in the log becomes true with the act."""
        with transaction.atomic(using=jobs_alias()):
            rows = Schedule.objects.using(jobs_alias()).select_for_update().filter(pk=pk)
            try:
                # To pause one that cannot be read must be possible.
                schedule = (rows.only("name", "enabled") if act in ("pause", "resume") else rows).first()
            except UNREADABLE as error:
                raise Refused(translated(status.unreadable(error).reason)) from None
            if schedule is None:
                raise NothingToDo(_("There is no schedule %d.") % pk)
            try:
                what, text = _ACTS[act](request, schedule, why, request.user.get_username())
            except JobsError as error:
                raise Refused(translated(error)) from None
            except ValidationError as error:
                raise Refused(
                    _("Schedule %(name)s stays as it is. %(error)s")
                    % {"name": schedule, "error": said(error).translated()}
                ) from None
            self.log_change(request, schedule, recorded(what, why))
        return text


def _pause(request: HttpRequest, schedule: Schedule, why: str, by: str) -> Did:
    if not schedule.enabled:
        raise NothingToDo(_("Schedule %s is paused already.") % schedule)
    schedule.pause(why=why, by=by)
    return lambda: _("Paused"), _("Schedule %s was paused.") % schedule


def _resume(request: HttpRequest, schedule: Schedule, why: str, by: str) -> Did:
    if schedule.enabled:
        raise NothingToDo(_("Schedule %s is not paused.") % schedule)
    schedule.resume(why=why, by=by)
    return lambda: _("Resumed"), _("Schedule %s was resumed; it makes jobs for the slots from now on.") % schedule


def _run(request: HttpRequest, schedule: Schedule, why: str, by: str) -> Did:
    job = schedule.run_now(why=why, by=by)
    made = format_html(_("Job {} of {} was made."), shown.job_link(job.pk), schedule)
    if held_by := holding.holding(schedule, holding.pauses(jobs_alias())):
        made = format_html("{} {} {}", made, _("It waits for the end of a pause."), pausing.holding(request, held_by))
    return lambda: _("Ran now, as job %d") % job.pk, made


def _as_code(request: HttpRequest, schedule: Schedule, why: str, by: str) -> Did:
    fields = operate.take_back(schedule, why=why, by=by)
    if not fields:
        raise NothingToDo(_("Schedule %s is as the code says.") % schedule)

    def names() -> str:
        return ", ".join(map(label, fields))

    text = _("Schedule %(name)s is as the code says again: %(fields)s.")
    return (
        lambda: _("Taken back to what the code says (%s)") % names(),
        text % {"name": schedule, "fields": names()},
    )


_ACTS: dict[str, Callable[[HttpRequest, Schedule, str, str], Did]] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "as_code": _as_code,
}
