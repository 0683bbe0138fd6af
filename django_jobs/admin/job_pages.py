from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from operator import itemgetter
from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs import redact, registry
from django_jobs.admin import pausing, shown, timeline, tracebacks, zoned
from django_jobs.admin.addresses import address
from django_jobs.admin.asked import list_address
from django_jobs.admin.job_edits import EditsAdmin
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.engines import jobs_alias
from django_jobs.engines.causes import HISTORY_LIMIT, LOSSES
from django_jobs.explain import Around, sentence
from django_jobs.models import ArchivedJob, Effect, Job, Worker, find
from django_jobs.models.clock import from_row
from django_jobs.models.schedule import Schedule
from django_jobs.queue.seen import version
from django_jobs.queue.sought import Sought, numbered

ARGUMENTS_APART = 50
EFFECTS_NAMED = 5


class JobPages(EditsAdmin):
    """The page of a job."""

    class Media:
        css = {"all": ["django_jobs/job.css"]}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        job = self.get_object(request, unquote(object_id))
        if job is None:
            return self._not_here(request, object_id)
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        around = Around.read(job._state.db)
        held_by = around.pauses_of(job) if job.status == Job.Status.READY else []
        job.held = bool(held_by)
        # As the lines of its history have it.
        job.clock_text = from_row(job.clock, job._state.db).isoformat()
        seen = redact.job(job)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Job %(id)d: %(type)s") % {"id": job.pk, "type": job.type},
            "subtitle": None,
            "opts": self.opts,
            "original": job,
            "media": self.media,
            "job": job,
            "state": shown.badge(job, job.clock),
            "explanation": sentence(job, around),
            "pauses": pausing.links(request, held_by),
            **self._acts_upon(request, job),
            "why_limit": WHY_LIMIT,
            "as_seen": version(job),
            "timeline": timeline.drawn(job, seen.history),
            "error": tracebacks.readable(seen.last_error),
            "ended_well": job.status == Job.Status.DONE,
            "facts": list(_facts(job, seen, around.holder_of(job))),
            "times": _times(job),
            **_left_by(request, job),
            "arguments": _arguments(job.type, seen.payload),
            "progress": shown.progress(seen.progress),
            "result": None if job.result is None else shown.as_json(seen.result),
            "runs": list(shown.runs(seen.history, job.clock, {str(worker): worker for worker in around.workers})),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/job/detail.html", context)

    def _not_here(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the page of a job that is archived by now."""
        for job_id in numbered(unquote(object_id)):
            url = address("django_jobs_archivedjob_change", job_id)
            if url and isinstance(find(jobs_alias(), job_id), ArchivedJob):
                return HttpResponseRedirect(url)
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]

    def _acts_upon(self, request: HttpRequest, job: Any) -> dict[str, str]:
        """Return the addresses of what may be done to a job, by this person and in its state."""
        found: dict[str, str] = {}
        edits = self.may_edit(request)
        if job.status in (Job.Status.READY, Job.Status.RUNNING):
            if "cancel" in self.acts and self.may(request, "cancel"):
                found["cancel_url"] = self.url_of("cancel", job.pk)
            if edits and job.status == Job.Status.READY:
                found["edit_url"] = self.url_of("edit", job.pk)
                if job.run_at > job.clock:
                    found["run_now_url"] = self.url_of("run_now", job.pk)
        elif self.may(request, "requeue"):
            found["requeue_url"] = self.url_of("requeue", job.pk)
            if edits:
                found["requeue_edited_url"] = self.url_of("edit", job.pk)
        return found


def _facts(job: Any, seen: redact.Shown, holder: Worker | None) -> Iterator[tuple[str, Any]]:
    yield _("type"), _type(job)
    yield _("queue"), format_html('<a href="{}">{}</a>', list_address(Sought(queue=job.queue)), job.queue)
    yield _("priority"), job.priority
    yield _("attempt"), shown.attempts(job)
    yield _("runs"), _runs(job)
    if repeats := _repeats(job):
        yield _("repeats"), repeats
    yield _("timeout"), _("none") if job.timeout is None else f"{job.timeout:g} s"
    if job.idempotency_key is not None:
        key = (list_address(Sought(key=job.idempotency_key)), job.idempotency_key, job.get_key_holds_display())
        yield _("idempotency key"), format_html('<a href="{}">{}</a> <span class="quiet">({})</span>', *key)
    if job.schedule:
        yield _("schedule"), _schedule(job)
    if job.locked_by:
        yield _("worker"), _holder(job, holder)
    if job.parked:
        yield _("parked"), job.get_parked_display()
    if (again := getattr(job, "requeued_as", None)) is not None:
        yield _("requeued as"), format_html("{} {}", _("job"), shown.job_link(again))
    if isinstance(job.meta, dict) and isinstance(before := job.meta.get("requeued_from"), int):
        yield _("requeued from"), format_html("{} {}", _("job"), shown.job_link(before))
    if job.cancel_reason is not None:
        yield _("to be cancelled") if job.locked_by else _("cancelled"), seen.cancel_reason
    if job.meta:
        yield _("meta"), shown.as_json(seen.meta)


def _runs(job: Any) -> str:
    if not job.losses:
        return str(job.token)
    said = ngettext("%(runs)d, %(losses)d loss in a row", "%(runs)d, %(losses)d losses in a row", job.losses)
    return said % {"runs": job.token, "losses": job.losses}


def _repeats(job: Any) -> str:
    """Say how often it ran again after a run of which it is not known how far it came."""
    lines = [line for line in job.history if isinstance(line, dict)] if isinstance(job.history, list) else []
    lost = [line.get("run") for line in lines if line.get("cause") in LOSSES]
    again = sum(isinstance(run, int) and run < job.token for run in lost)
    if not again:
        return ""
    number = _("at least %d") % again if len(lines) >= HISTORY_LIMIT else str(again)
    return ngettext("ran again after a loss %s time", "ran again after a loss %s times", again) % number


def _left_by(request: HttpRequest, job: Any) -> dict[str, Any]:
    """Return the effects that may have happened: the newest of them, how many more, and where they all are."""
    found = Effect.objects.using(job._state.db).left_by(job)
    newest = list(found[:EFFECTS_NAMED])
    linked = request.user.has_perm("django_jobs.view_effect")
    return {
        "effects": [(_effect(effect, linked), effect.asks, shown.age(effect.asked_at, job.clock)) for effect in newest],
        "more_effects": found.count() - len(newest) if len(newest) == EFFECTS_NAMED else 0,
        "effects_url": address("django_jobs_effect_changelist", query={"what": "may-have-happened"}) if linked else "",
    }


def _effect(effect: Effect, linked: bool) -> str:
    if not linked:
        return format_html('<span class="dj-name">{}</span>', effect.key)
    url = address("django_jobs_effect_change", effect.pk)
    return format_html('<a href="{}" class="dj-name">{}</a>', url, effect.key)


def _times(job: Any) -> list[tuple[str, str]]:
    """Return all times of a job, the earliest first."""
    fields = [field for field in job._meta.fields if isinstance(field, DateTimeField)]
    again = job.started_at is not None and job.started_at < job.run_at
    labels = {"run_at": _("due again at")} if again else {}
    known = [
        (getattr(job, field.name), labels.get(field.name, field.verbose_name))
        for field in fields
        if getattr(job, field.name) is not None
    ]
    return [(str(name), shown.moment(at, job.clock)) for at, name in sorted(known, key=itemgetter(0))]


def _type(job: Job) -> str:
    link = format_html('<a href="{}">{}</a>', list_address(Sought(type=job.type)), shown.name(job.type))
    if registry.find(job.type) is None:
        return format_html('{} <span class="quiet">({})</span>', link, _("not known to this web process"))
    return link


def _schedule(job: Any) -> str:
    """Return the schedule, as a link while it is there, with the slot by its clock."""
    found = Schedule.objects.using(job._state.db).filter(name=job.schedule).only("pk", "timezone").first()
    if found is None:
        return format_html('{} <span class="quiet">({})</span>', job.schedule, _("gone"))
    link = shown.schedule_link(found.pk, job.schedule)
    zone = zoned.zone_or_none(found.timezone)
    if job.slot is None or zone is None:
        return link
    slot = zoned.reading(from_row(job.slot, job._state.db), zone)
    return format_html('{} <span class="quiet">({} {})</span>', link, _("slot"), slot)


def _arguments(type_name: str, payload: Any) -> list[tuple[str, str]]:
    """Return each argument with its place, its name or both; many, or what enqueue would not have stored, as a whole."""
    match payload:
        case {"args": list() as args, "kwargs": dict() as kwargs} if len(args) + len(kwargs) <= ARGUMENTS_APART:
            names = redact.names(type_name, len(args))
            named = [
                *((f"{at} {name}".rstrip(), value) for at, name, value in zip(count(1), names, args, strict=False)),
                *kwargs.items(),
            ]
            return [(name, shown.as_json(value)) for name, value in named]
        case _:
            return [("", shown.as_json(payload))]


def _holder(job: Any, worker: Worker | None) -> str:
    if worker is None:
        return format_html('{} <span class="quiet">({})</span>', job.locked_by, _("gone"))
    return shown.worker_link(worker)
