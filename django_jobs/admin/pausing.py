"""Pauses where they are in force: what pages say of them, and ending one from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from django_jobs import pauses, registry
from django_jobs.admin import shown
from django_jobs.admin.addresses import address
from django_jobs.admin.base import QueueAdmin
from django_jobs.admin.nav import may_pause, sees
from django_jobs.engines import jobs_alias
from django_jobs.models import Pause

PAUSES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class InForce:
    """A pause in the words of a page. `resume_url`: where it is ended, empty for who may not."""

    kind: str
    kind_label: str
    name: str
    until: str
    since: str
    by: str
    why: str
    resume_url: str


def in_force(asked: Any) -> list[InForce]:
    """Return every pause in force, for a page that has asked for it."""
    return found(asked.request)


def found(request: HttpRequest, which: Q | None = None) -> list[InForce]:
    """Return the pauses in force, all or those that a condition chooses, queues first."""
    rows = Pause.objects.using(jobs_alias()).in_force().annotate(clock=Now()).order_by("kind", "name")
    if which is not None:
        rows = rows.filter(which)
    resume_url = address("django_jobs_pause_resume") if may_pause(request) else ""
    return [_shown(row, resume_url) for row in rows[:PAUSES_SHOWN]]


def of_jobs(queue: str = "", job_type: str = "", listed: Iterable[Any] = ()) -> Q | None:
    """Choose the pauses that hold jobs of a queue and a type, of any where none is given.

    Where one of the two is given, also those of the other that the list may hold: by what it shows, or by where the jobs
    of a type go unless they are told otherwise.
    """
    chosen = Q()
    if queue and "\x00" not in queue:
        chosen |= Q(kind=Pause.Kind.QUEUE, name=queue)
    if job_type and "\x00" not in job_type:
        chosen |= Q(kind=Pause.Kind.TYPE, name=job_type)
    if queue and not job_type:
        types = {name for name in registry.names() if (found := registry.find(name)) and found.queue == queue}
        chosen |= Q(kind=Pause.Kind.TYPE, name__in=types | {job.type for job in listed})
    if job_type and not queue:
        queues = {found.queue} if (found := registry.find(job_type)) else set()
        chosen |= Q(kind=Pause.Kind.QUEUE, name__in=queues | {job.queue for job in listed})
    return chosen or None


def of_worker(queues: Iterable[str] | None, types: Iterable[str]) -> Q:
    """Choose the pauses of what a worker would run otherwise; None are all queues."""
    served = Q(kind=Pause.Kind.QUEUE) if queues is None else Q(kind=Pause.Kind.QUEUE, name__in=list(queues))
    return served | Q(kind=Pause.Kind.TYPE, name__in=list(types))


def _shown(row: Any, resume_url: str) -> InForce:
    return InForce(
        kind=row.kind,
        kind_label=str(row.get_kind_display()),
        name=row.name,
        until=until(row) if row.until else "",
        since=shown.age(row.created_at, row.clock),
        by=row.by,
        why=row.why,
        resume_url=resume_url,
    )


def until(row: Any) -> str:
    """Return the minute in which a pause ends; the exact time is the tooltip of how far that is."""
    minute, far = shown.minute(row.until), shown.age(row.until, row.clock)
    return format_html('<span class="nowrap">{}</span> <span class="quiet nowrap">({})</span>', minute, far)


def named(kind: str, name: str) -> Any:
    """Return the pause in force of a queue or type, if there is one."""
    rows = Pause.objects.using(jobs_alias()).in_force().annotate(clock=Now())
    return rows.filter(kind=kind, name=name).first()


def already(row: Any) -> str:
    """Return that there is a pause, with what its maker said of it and a link to it, for who may pause."""
    return format_html(
        '{} <a href="{}">{}</a> {}{} ({}{}).',
        _("It is paused already:"), address("django_jobs_pause_change", row.pk), said(row), _end(row),
        f": {row.why}" if row.why else "", f"{row.by}, " if row.by else "", shown.age(row.created_at, row.clock),
    )  # fmt: skip


def said(pause: Pause) -> str:
    """Return what a pause is of, in the reader's language."""
    return f"{pause.get_kind_display()} {pause.name}"


def holding(request: HttpRequest, held_by: Sequence[Any]) -> str:
    """Return which pauses hold jobs, each a link for who may see it, and until when."""
    lines = ((row.get_kind_display(), _link(request, row), _end(row)) for row in held_by)
    return format_html("{} {}.", _("Paused:"), format_html_join(", ", "{} {} {}", lines))


def links(request: HttpRequest, held_by: Sequence[Any]) -> str:
    """Return a link to each pause that holds a job whose sentence says the rest; empty for who may see none."""
    if not sees(request, Pause) or not held_by:
        return ""
    lines = ((address("django_jobs_pause_change", row.pk), said(row)) for row in held_by)
    return format_html("{} {}", _("Paused:"), format_html_join(", ", '<a href="{}">{}</a>', lines))


def _link(request: HttpRequest, row: Any) -> str:
    url = address("django_jobs_pause_change", row.pk) if sees(request, Pause) else ""
    return format_html('<a href="{}">{}</a>', url, shown.name(row.name)) if url else shown.name(row.name)


def _end(row: Any) -> str:
    return format_html(_("until {}"), until(row)) if row.until else _("until it is resumed")


def form_address(kind: str, name: str, back: str, why: str = "") -> str:
    """Return where this queue or type is paused, with an end or without one, to come back to another page."""
    query = {"kind": kind, "called": name, "next": back, **({"why": why} if why else {})}
    return address("django_jobs_pause_add", query=query)


def back_to(request: HttpRequest, otherwise: str) -> str:
    """Return the page of ours that a form or link names as the one to come back to."""
    url = request.POST.get("next") or request.GET.get("next") or ""
    return url if url_has_allowed_host_and_scheme(url, None) and url.startswith("/") else otherwise


class ResumingAdmin(QueueAdmin):
    """Ends a pause by a button on any page."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.resume_view)
        return [path("resume/", view, name="django_jobs_pause_resume"), *super().get_urls()]

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        if not may_pause(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        # In the list of pauses all rows are in one form, and the button says which of them is meant.
        kind, name = request.POST.get("kind", ""), request.POST.get("name", "").replace("\x00", "")
        if "pause" in request.POST:
            kind, _space, name = request.POST["pause"].replace("\x00", "").partition(" ")
        rows = Pause.objects.using(jobs_alias()).filter(kind=kind, name=name)
        with transaction.atomic(using=rows.db):
            ended = rows.in_force().first()
            if ended is not None:
                self.log_deletions(request, rows.filter(pk=ended.pk))
                pauses.resume(**{ended.kind: ended.name})
        if ended is None:
            messages.info(request, _("%s is not paused any more.") % name)
        else:
            messages.success(request, _("Resumed: %s.") % said(ended))
        return HttpResponseRedirect(back_to(request, address("django_jobs_pause_changelist")))
