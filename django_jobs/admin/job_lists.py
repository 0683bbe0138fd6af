from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import shown
from django_jobs.admin.base import QueueAdmin
from django_jobs.admin.filters import NEWEST, ORDERS, QueueFilter, StateFilter, TypeFilter
from django_jobs.admin.listing import LOOK_BACK, JobChangeList, search
from django_jobs.models import Job

FILTERED = {StateFilter.parameter_name, QueueFilter.parameter_name, TypeFilter.parameter_name}


class JobLists(QueueAdmin):
    """The list of jobs."""

    list_display = ("number", "type_", "state", "when")
    list_filter: ClassVar[tuple[Any, ...]] = (StateFilter, QueueFilter, TypeFilter)
    search_fields = ("pk",)  # so that there is a field for the search, which is `search`
    search_help_text = gettext_lazy("The id of a job, or an idempotency key or its beginning.")

    # The list.

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return JobChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ORDERS.get(request.GET.get("state", ""), NEWEST)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = search_term.strip()
        return (search(queryset, term) if term else queryset), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in FILTERED  # others could ask for a look at every row

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Jobs"), "look_back": LOOK_BACK, **(extra_context or {})})

    @admin.display(description="id")
    def number(self, job: Job) -> int:
        return job.pk

    @admin.display(description=gettext_lazy("type and queue"))
    def type_(self, job: Any) -> str:
        priority = (
            format_html(' <span title="{}">{}</span>', _("priority"), f"{job.priority:+d}") if job.priority else ""
        )
        return format_html(
            '{}<div class="dj-small dj-call">{}</div><div class="quiet dj-small">{}{}</div>',
            shown.name(job.type),
            job.call,
            job.queue,
            priority,
        )

    @admin.display(description=gettext_lazy("state and last error"))
    def state(self, job: Any) -> str:
        reason, line = shown.reason(job), shown.last_line(job.error_end)
        return format_html(
            '{} <span class="quiet">{}</span>{}',
            shown.badge(job, job.clock),
            reason,
            format_html('<div class="dj-error" title="{}">{}</div>', line, line) if line else "",
        )

    @admin.display(description=gettext_lazy("when, and attempt"))
    def when(self, job: Any) -> str:
        match job.status:
            case Job.Status.READY:
                moment, words = job.run_at, _("due")
            case Job.Status.RUNNING:
                moment, words = job.last_started_at, _("started")
            case _:
                moment, words = job.finished_at, _("ended")
        return format_html(
            '<span class="dj-when"><span class="quiet">{}</span> {}</span><div class="quiet dj-small">{}</div>',
            words,
            shown.age(moment, job.clock),
            shown.attempts(job),
        )
