from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import filters, shown
from django_jobs.admin.asked import NAMES
from django_jobs.admin.base import QueueAdmin
from django_jobs.admin.dead_letters import dead_letters
from django_jobs.admin.listing import AT, JobChangeList, search
from django_jobs.models import Job


class RetriesChangeList(JobChangeList):
    """The list of jobs that wait for another attempt, by their due time."""

    state = "retries"


class JobLists(QueueAdmin):
    """The list of jobs, that of retries, and dead letters by what they say."""

    list_display = ("number", "type_", "state", "when")
    list_filter: ClassVar[tuple[Any, ...]] = (
        filters.StateFilter,
        filters.TimeFilter,
        filters.QueueFilter,
        filters.TypeFilter,
        filters.FreeFilter,
        filters.PriorityFilter,
        filters.WorkerFilter,
        filters.ScheduleFilter,
        filters.ParkedFilter,
    )
    search_fields = ("pk",)  # so that there is a field for the search, which is `asked.sought_of`
    search_help_text = gettext_lazy(
        "The id of a job; an idempotency key or its beginning; an argument as args.0=5 or kwargs.customer.id=7; a tag as "
        "tag:billing. All else is looked for in the last errors, those of dead letters first."
    )

    class Media:
        css = {"all": ["django_jobs/lists.css"]}

    def get_urls(self) -> list[URLPattern]:
        def at(where: str, view: Any) -> URLPattern:
            name = f"django_jobs_{self.opts.model_name}_{where.replace('-', '_')}"
            found: URLPattern = path(f"{where}/", self.admin_site.admin_view(view), name=name)
            return found

        return [at("retries", self.retries_view), at("dead-letters", self.dead_letters_view), *super().get_urls()]

    # The lists.

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return RetriesChangeList if _is_retries(request) else JobChangeList

    def get_list_filter(self, request: HttpRequest) -> Any:
        without = (filters.StateFilter, filters.WorkerFilter, filters.ParkedFilter) if _is_retries(request) else ()
        return [found for found in self.list_filter if found not in without]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = search_term.strip()
        return (search(queryset, term) if term else queryset), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in (*NAMES, AT)  # others could ask for a look at every row

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = _("Retries") if _is_retries(request) else _("Jobs")
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def retries_view(self, request: HttpRequest) -> HttpResponse:
        return self.changelist_view(request)

    def dead_letters_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Dead letters"),
            "opts": self.opts,
            "media": self.media,
            **dead_letters(request.GET, may_requeue=self.has_requeue_permission(request)),  # type: ignore[attr-defined]
        }
        return TemplateResponse(request, "admin/django_jobs/job/dead_letters.html", context)

    # The columns.

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
        quiet = " dj-past" if job.status == Job.Status.DONE else ""  # the run that followed has succeeded
        return format_html(
            '{} <span class="quiet">{}</span>{}',
            shown.badge(job, job.clock),
            reason,
            format_html('<div class="dj-error{}" title="{}">{}</div>', quiet, line, line) if line else "",
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


def _is_retries(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and str(match.url_name).endswith("_retries")
