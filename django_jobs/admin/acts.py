"""Requeue and cancel, on the list and on a job's page: asked by POST, by those who may, each recorded with its why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_jobs.admin import beside, bounded
from django_jobs.admin.addresses import address
from django_jobs.admin.bounded import TooSlow
from django_jobs.admin.listing import HEAVY
from django_jobs.admin.shown import badge, job_link, name
from django_jobs.admin.why import WHY_LIMIT, WhyAdmin, is_asked, recorded, ticked, why_of
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import JobDoesNotExist, StateConflict
from django_jobs.models import Job, find
from django_jobs.queue import operate
from django_jobs.queue.sought import numbered
from django_jobs.texts import translated

REFUSALS_SHOWN = 10
REQUEUED, CANCELLED, ASKED = "requeued", "cancelled", "asked"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for: an act upon jobs, with a reason."""

    act: str
    ids: list[int]
    why: str
    as_seen: str | None = None


class ActsAdmin(WhyAdmin):
    acts: tuple[str, ...] = ("requeue", "cancel")
    actions = list(acts)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "requeue")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "cancel")

    # On the list.

    def acts_one_by_one(self, request: HttpRequest) -> bool:
        return is_asked(request, "requeue") or (is_asked(request, "cancel") and "confirmed" in request.POST)

    @admin.action(description=gettext_lazy("Requeue selected %(verbose_name_plural)s"), permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        return self._confirmed_on_list(request, "requeue")

    @admin.action(description=gettext_lazy("Cancel selected %(verbose_name_plural)s"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        return self._confirmed_on_list(request, "cancel")

    def _confirmed_on_list(self, request: HttpRequest, act: str) -> HttpResponse | None:
        if (asked := self._asked_on_list(request, act)) is not None:
            if self._is_to_be_confirmed(request, asked):
                return self._confirmation(request, asked, back=request.get_full_path())
            self._carry_out(request, asked)
        return None

    def _asked_on_list(self, request: HttpRequest, act: str) -> Asked | None:
        """Take the rows as they were ticked: by now some may be in another state than the list is filtered for."""
        if request.POST.get("select_across", "0") not in ("", "0"):
            messages.error(request, _("Tick the jobs: what a filter finds may be millions, and changes meanwhile."))
            return None
        return Asked(act, ticked(request), why_of(request))

    # On a job's page.

    def get_urls(self) -> list[URLPattern]:
        def at(act: str) -> URLPattern:
            view = self.admin_site.admin_view(self.act_view)
            return path(f"<int:job_id>/{act}/", view, {"act": act}, name=f"django_jobs_{self.opts.model_name}_{act}")

        return [*(at(act) for act in self.acts), *super().get_urls()]

    def url_of(self, what: str, job_id: int) -> str:
        return address(f"django_jobs_{self.opts.model_name}_{what}", job_id)

    def act_view(self, request: HttpRequest, job_id: int, act: str) -> HttpResponse:
        if not self.may(request, act):
            raise PermissionDenied
        page = self.url_of("change", job_id)
        asked = Asked(act, [job_id], why_of(request), request.POST.get("as_seen"))
        if act != "cancel" and request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if self._is_to_be_confirmed(request, asked):
            return self._confirmation(request, asked, back=page)
        self._carry_out(request, asked)
        return HttpResponseRedirect(page)

    # Both.

    def _is_to_be_confirmed(self, request: HttpRequest, asked: Asked) -> bool:
        """Tell whether a person is asked once more: of a cancel, and of a requeue of what has succeeded."""
        if "confirmed" in request.POST:
            return False
        if asked.act == "cancel":
            return True
        ids = [found for job_id in asked.ids for found in numbered(str(job_id))]
        return self.get_queryset(request).filter(pk__in=ids, status=Job.Status.DONE).exists()

    def _confirmation(self, request: HttpRequest, asked: Asked, back: str) -> HttpResponse:
        found = self.get_queryset(request).filter(pk__in=asked.ids).order_by("pk").defer(*HEAVY)
        jobs = beside.with_calls(beside.with_held(found))
        title = (
            ngettext("Run a job again?", "Run %(number)d jobs again?", len(jobs))
            if asked.act == "requeue"
            else ngettext("Cancel a job?", "Cancel %(number)d jobs?", len(jobs))
        )
        context = {
            **self.admin_site.each_context(request),
            "title": title % {"number": len(jobs)},
            "act": asked.act,
            "as_seen": asked.as_seen,
            "opts": self.opts,
            "media": self.media,
            "rows": [{"job": job, "name": name(job.type), "state": badge(job, job.clock)} for job in jobs],
            "running": sum(job.status == Job.Status.RUNNING for job in jobs),
            "why": asked.why,
            "why_limit": WHY_LIMIT,
            "checkbox": ACTION_CHECKBOX_NAME,
            "back": back,
        }
        return TemplateResponse(request, "admin/django_jobs/job/confirm.html", context)

    def _carry_out(self, request: HttpRequest, asked: Asked) -> None:
        """Do it to one job after the other, in the order of their ids, and say what became of each."""
        outcomes: dict[str, list[int]] = {}
        anew: list[tuple[int, int]] = []
        refusals: list[tuple[int, str]] = []
        left: list[int] = []
        for place, job_id in enumerate(asked.ids):
            try:
                outcome, now = self._act(request, asked, job_id)
            except TooSlow:
                left = asked.ids[place:]
                break
            except (JobDoesNotExist, StateConflict) as error:
                refusals.append((job_id, translated(error)))
            else:
                outcomes.setdefault(outcome, []).append(job_id)
                anew += [(job_id, now)] if now != job_id else []
        for outcome, ids in outcomes.items():
            messages.success(request, _said(outcome, ids))
        for job_id, now in anew[:REFUSALS_SHOWN]:
            text = _("Job {} is archived: it was requeued as the new job {}, without an idempotency key.")
            messages.info(request, format_html(text, job_id, job_link(now)))
        for said in _refused(refusals):
            messages.warning(request, said)
        if left:
            messages.error(request, bounded.said(left))

    def _act(self, request: HttpRequest, asked: Asked, job_id: int) -> tuple[str, int]:
        """Act upon one job; where they share a database, its record in the log becomes true with the act.

        Return what came of it, and the id that the job has now: it may be archived since it was shown.
        """
        now = job_id
        by = request.user.get_username()
        with bounded.bounded_act():
            job = find(jobs_alias(), job_id)
            if job is None:
                raise JobDoesNotExist(_("There is no job %d.") % job_id)
            if asked.act == "requeue":
                now = operate.requeue(job_id, why=asked.why, by=by, as_seen=asked.as_seen)
                outcome = REQUEUED
            else:
                outcome = operate.cancel(job_id, why=asked.why, by=by)
            self.log_change(request, job, _recorded(outcome, asked.why))
        return outcome, now


def _recorded(outcome: str, why: str) -> str:
    def word() -> str:
        return {REQUEUED: _("Requeued"), CANCELLED: _("Cancelled"), ASKED: _("Asked to stop, to be cancelled")}[outcome]

    return recorded(word, why)


def _refused(refusals: list[tuple[int, str]]) -> Iterator[str]:
    """Say each reason once, with the jobs that it stands for: it differs between them in their ids alone."""
    reasons: dict[str, list[tuple[int, str]]] = {}
    for job_id, reason in refusals:
        reasons.setdefault(re.sub(rf"\b{job_id}\b", "", reason, count=1), []).append((job_id, reason))
    for jobs in [*reasons.values()][:REFUSALS_SHOWN]:
        ids = [str(job_id) for job_id, _reason in jobs[:REFUSALS_SHOWN]] + ["..."] * (len(jobs) > REFUSALS_SHOWN)
        words = {"number": len(jobs), "ids": ", ".join(ids), "reason": jobs[0][1]}
        alike = _("%(number)d jobs were refused in the same way (%(ids)s). Of the first: %(reason)s")
        yield alike % words if len(jobs) > 1 else jobs[0][1]
    if more := sum(map(len, [*reasons.values()][REFUSALS_SHOWN:])):
        yield _("%d more jobs were refused for other reasons.") % more


def _said(outcome: str, ids: list[int]) -> str:
    if len(ids) == 1:
        one = {
            REQUEUED: _("Job %(id)d was requeued."),
            CANCELLED: _("Job %(id)d was cancelled."),
            ASKED: _("Job %(id)d runs; its handler is told to stop within a heartbeat."),
        }
        return one[outcome] % {"id": ids[0]}
    match outcome:
        case "requeued":
            text = ngettext("%(number)d job was requeued.", "%(number)d jobs were requeued.", len(ids))
        case "cancelled":
            text = ngettext("%(number)d job was cancelled.", "%(number)d jobs were cancelled.", len(ids))
        case _:
            text = ngettext(
                "%(number)d job runs; its handler is told to stop within a heartbeat.",
                "%(number)d jobs run; their handlers are told to stop within a heartbeat.",
                len(ids),
            )
    return text % {"number": len(ids)}
