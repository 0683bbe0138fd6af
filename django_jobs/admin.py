from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.http import HttpRequest

from django_jobs.models import Job, Worker

if TYPE_CHECKING:
    JobModelAdmin = admin.ModelAdmin[Job]
    WorkerModelAdmin = admin.ModelAdmin[Worker]
else:
    JobModelAdmin = WorkerModelAdmin = admin.ModelAdmin


class _ReadOnly:
    """Rows of the queue are changed by the queue alone."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(_ReadOnly, JobModelAdmin):
    list_display = ("id", "type", "queue", "priority", "status", "attempts", "run_at", "finished_at")
    list_filter = ("status",)
    ordering = ("-id",)
    fields = (
        "id",
        "explanation",
        "type",
        "payload",
        "queue",
        "priority",
        "status",
        "parked",
        "idempotency_key",
        "run_at",
        "attempts",
        "max_attempts",
        "losses",
        "token",
        "locked_by",
        "locked_until",
        "timeout",
        "progress",
        "result",
        "last_error",
        "history",
        "created_at",
        "started_at",
        "last_started_at",
        "finished_at",
    )

    @admin.display(description="why it is here")
    def explanation(self, job: Job) -> str:
        return job.explain()

    readonly_fields = ("explanation",)


@admin.register(Worker)
class WorkerAdmin(_ReadOnly, WorkerModelAdmin):
    list_display = ("host", "pid", "queues", "threads", "started_at", "heartbeat_at")
    ordering = ("host", "pid")
