from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import shown
from django_jobs.admin.nav import sees
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.admin.worker_acts import WorkerActsAdmin
from django_jobs.admin.worker_runs import runs_of
from django_jobs.models import Job, Worker

RUNS_SHOWN = 200


class WorkerChangeList(ChangeList):
    """The list of workers, without what is long of them, each with what it runs for who may see jobs."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Worker]:
        found: QuerySet[Worker] = super().get_queryset(request, *args, **kwargs)
        return found.defer("types", "stacks")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        workers = list(self.result_list)
        runs = runs_of(workers if sees(request, Job) else [])
        for worker in workers:
            worker.runs = runs.get(worker.pk)
        self.result_list = workers


@admin.register(Worker)
class WorkerAdmin(WorkerActsAdmin):
    list_display = ("process", "state", "queues_", "threads_", "runs_now", "heartbeat", "up")
    ordering = ("host", "pid")

    class Media:
        css = {"all": ["django_jobs/workers.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: Any = super().get_queryset(request)
        marked: QuerySet[Any] = found.marked()
        return marked

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WorkerChangeList

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return [name for name in self.list_display if name != "runs_now" or sees(request, Job)]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Workers"), **(extra_context or {})})

    @admin.display(description=gettext_lazy("process"))
    def process(self, worker: Worker) -> str:
        return str(worker)

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Any) -> str:
        return shown.worker_badge(worker)

    @admin.display(description=gettext_lazy("queues"))
    def queues_(self, worker: Worker) -> str:
        return shown.queues(worker)

    @admin.display(description=gettext_lazy("threads"))
    def threads_(self, worker: Worker) -> int:
        return worker.threads

    @admin.display(description=gettext_lazy("runs now"))
    def runs_now(self, worker: Any) -> str:
        return str(worker.runs.summary(worker.clock))

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
        runs = runs_of([worker])[worker.pk] if sees(request, Job) else None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Worker %s") % worker,
            "subtitle": None,
            "opts": self.opts,
            "original": worker,
            "media": self.media,
            "state": shown.worker_badge(worker),
            "may_manage": self.has_manage_permission(request),
            "why_limit": WHY_LIMIT,
            "facts": _facts(worker),
            "types": worker.types or [],
            "held": len(runs.jobs) if runs else 0,
            "number": runs.number if runs else "",
            "running": runs.lines(worker.clock)[:RUNS_SHOWN] if runs else None,
            "stacks_asked": worker.stacks_asked_at and shown.age(worker.stacks_asked_at, worker.clock),
            "stacks_of": worker.stacks_at and shown.moment(worker.stacks_at, worker.clock),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/worker/detail.html", context)


def _facts(worker: Any) -> list[tuple[str, Any]]:
    return [
        (_("host"), worker.host),
        (_("process id"), worker.pid),
        (_("supervisor's process id"), worker.supervisor_pid),
        (_("queues"), shown.queues(worker)),
        (_("threads"), worker.threads),
        (_("started"), shown.moment(worker.started_at, worker.clock)),
        (_("last heartbeat"), shown.moment(worker.heartbeat_at, worker.clock)),
        (_("incarnation"), worker.pk),
    ]
