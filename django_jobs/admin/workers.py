from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import redact
from django_jobs.admin import beside, shown
from django_jobs.admin.base import QueueAdmin
from django_jobs.engines import jobs_alias
from django_jobs.explain import live_workers
from django_jobs.models import Job, JobQuerySet, Worker

RUNS_SHOWN = 200


@admin.register(Worker)
class WorkerAdmin(QueueAdmin):
    list_display = ("process", "state", "queues_", "threads_", "runs_now", "heartbeat", "up")
    ordering = ("host", "pid")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live = live_workers(jobs_alias()).filter(pk=OuterRef("pk"))
        found: QuerySet[Any] = super().get_queryset(request).annotate(live=Exists(live))
        return found

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Workers"), **(extra_context or {})})

    @admin.display(description=gettext_lazy("process"))
    def process(self, worker: Worker) -> str:
        return str(worker)

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Any) -> str:
        slug, word = ("live", _("live")) if worker.live else ("silent", _("silent"))
        return format_html('<span class="dj-state dj-state-{}">{}</span>', slug, word)

    @admin.display(description=gettext_lazy("queues"))
    def queues_(self, worker: Worker) -> str:
        return _("all") if worker.queues is None else ", ".join(map(str, worker.queues))

    @admin.display(description=gettext_lazy("threads"))
    def threads_(self, worker: Worker) -> int:
        return worker.threads

    @admin.display(description=gettext_lazy("jobs running"))
    def runs_now(self, worker: Worker) -> int:
        return int(_running_on(worker).count())

    @admin.display(description=gettext_lazy("last heartbeat"))
    def heartbeat(self, worker: Any) -> str:
        return shown.age(worker.heartbeat_at, worker.clock)

    @admin.display(description=gettext_lazy("started"))
    def up(self, worker: Any) -> str:
        return shown.age(worker.started_at, worker.clock)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        worker = self.get_object(request, unquote(object_id))
        if worker is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
        if not self.has_view_permission(request, worker):
            raise PermissionDenied
        running = _running_on(worker).order_by("last_started_at").defer("payload", "result", "history", "last_error")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Worker %s") % worker,
            "subtitle": None,
            "opts": self.opts,
            "original": worker,
            "media": self.media,
            "state": self.state(worker),
            "facts": [
                (_("host"), worker.host),
                (_("process id"), worker.pid),
                (_("supervisor's process id"), worker.supervisor_pid),
                (_("queues"), self.queues_(worker)),
                (_("threads"), worker.threads),
                (_("started"), shown.moment(worker.started_at, worker.clock)),
                (_("last heartbeat"), shown.moment(worker.heartbeat_at, worker.clock)),
                (_("incarnation"), worker.pk),
            ],
            "types": worker.types or [],
            "running": [_line(job, worker.clock) for job in beside.with_calls(running[:RUNS_SHOWN])],
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/worker/detail.html", context)


def _running_on(worker: Worker) -> JobQuerySet:
    found: JobQuerySet = Job.objects.using(jobs_alias()).running().filter(locked_by__startswith=f"{worker.pk}:")
    return found


def _line(job: Any, clock: Any) -> dict[str, Any]:
    return {
        "job": shown.job_link(job.pk),
        "type": shown.name(job.type),
        "run": job.token,
        "since": shown.age(job.last_started_at, clock),
        "progress": shown.progress(redact.texts(job.progress, job.secrets)),
    }
