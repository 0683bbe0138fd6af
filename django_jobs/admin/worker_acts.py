"""What people ask of worker processes, on the list and on a process's page: by POST, recorded with its why."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import processes
from django_jobs.admin.addresses import address
from django_jobs.admin.why import WHY_LIMIT, WhyAdmin, recorded, why_of
from django_jobs.admin.worker_runs import READ, runs_of
from django_jobs.engines import jobs_alias
from django_jobs.models import Worker

ACTS = ("quiet", "work", "stop", "stacks")


class WorkerActsAdmin(WhyAdmin):
    actions = ["quiet", "work"]

    def has_manage_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "manage")

    # On the list.

    @admin.action(description=gettext_lazy("Quiet selected workers"), permissions=["manage"])
    def quiet(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        for worker in queryset:
            self._ask(request, worker, "quiet")

    @admin.action(description=gettext_lazy("Have selected workers work again"), permissions=["manage"])
    def work(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        for worker in queryset:
            self._ask(request, worker, "work")

    # On a process's page.

    def get_urls(self) -> list[URLPattern]:
        def at(act: str) -> URLPattern:
            view = self.admin_site.admin_view(self.act_view)
            return path(f"<str:worker_id>/{act}/", view, {"act": act}, name=f"django_jobs_worker_{act}")

        return [*map(at, ACTS), *super().get_urls()]

    def act_view(self, request: HttpRequest, worker_id: str, act: str) -> HttpResponse:
        if not self.has_manage_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        worker: Any = self.get_queryset(request).filter(pk=worker_id).first()
        if worker is None:
            messages.warning(request, _("That process has ended: there is nobody to ask."))
            return HttpResponseRedirect(address("django_jobs_worker_changelist"))
        if act == "stop" and worker.live and "confirmed" not in request.POST:
            return self._confirmation(request, worker)
        self._ask(request, worker, act)
        return HttpResponseRedirect(address("django_jobs_worker_change", worker.pk))

    def _confirmation(self, request: HttpRequest, worker: Any) -> HttpResponse:
        of_it = list(
            Worker.objects.using(jobs_alias()).live().filter(supervisor=worker.supervisor).order_by("host", "pid")
        )
        runs = runs_of(of_it)
        number = sum(len(held.jobs) for held in runs.values())
        context = {
            **self.admin_site.each_context(request),
            "title": _("Stop the runworkers of %s?") % worker,
            "opts": self.opts,
            "original": worker,
            "media": self.media,
            "rows": [(other, runs[other.pk].number) for other in of_it],
            "processes": len(of_it),
            "runs": number,
            "capped": number >= READ,
            "why": why_of(request),
            "why_limit": WHY_LIMIT,
            "back": address("django_jobs_worker_change", worker.pk),
        }
        return TemplateResponse(request, "admin/django_jobs/worker/stop.html", context)

    # Both.

    def _ask(self, request: HttpRequest, worker: Worker, act: str) -> None:
        """Ask one process; where they share a database, its record in the log becomes true with that."""
        why = why_of(request)
        with transaction.atomic(using=jobs_alias()):
            said = _asked(act, worker.pk)
            if said is not None:
                self.log_change(request, worker, recorded(lambda: _done(act), why))
        if said is not None:
            messages.success(request, said % {"worker": worker})
        else:
            text = _("Nobody hears for %s: it stops, or its heartbeats have, or it has ended.")
            messages.warning(request, text % worker)


def _done(act: str) -> str:
    words = {"quiet": _("Quieted"), "work": _("Told to work again"), "stop": _("Told to stop")}
    return words.get(act, _("Asked for its stacks"))


def _asked(act: str, worker_id: str) -> str | None:
    """Ask, and return what is to be said of it; None when nobody hears it."""
    match act:
        case "quiet":
            text = _("%(worker)s is told to claim nothing more; it hears that with its next heartbeat.")
            return text if processes.quiet(worker_id) else None
        case "work":
            text = _("%(worker)s is told to work again; it hears that with its next heartbeat.")
            return text if processes.work(worker_id) else None
        case "stop":
            text = _("The runworkers of %(worker)s is told to stop; it hears that with its next heartbeat.")
            return text if processes.stop(worker_id) else None
        case _:
            text = _("%(worker)s is asked for its stacks with its next heartbeat. Load this page again a little later.")
            return text if processes.dump(worker_id) else None
