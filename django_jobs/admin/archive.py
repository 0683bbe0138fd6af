from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import filters
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.listing import JobChangeList
from django_jobs.models import ArchivedJob
from django_jobs.queue.sought import numbered


class ArchiveChangeList(JobChangeList):
    """The list of archived jobs, of which no index tells more than the id."""

    archived = True


@admin.register(ArchivedJob)
class ArchivedJobAdmin(JobAdmin):
    """Shows archived jobs as jobs are shown. A requeue makes a new job."""

    acts = ("requeue",)
    actions = list(acts)
    list_filter = (
        filters.EndFilter,
        filters.TimeFilter,
        filters.QueueFilter,
        filters.TypeFilter,
        filters.FreeFilter,
        filters.PriorityFilter,
        filters.ScheduleFilter,
    )
    search_help_text = gettext_lazy(
        "The id of a job; a key or its beginning as key:order:17; an argument as args.0=5 or kwargs.customer.id=7; a tag as "
        "tag:billing. All else is looked for in the last errors."
    )
    change_list_template = "admin/django_jobs/job/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        lists = {f"django_jobs_archivedjob_{name}" for name in ("retries", "dead_letters")}
        return [found for found in super().get_urls() if found.name not in lists]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return ArchiveChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(pk__in=numbered(term)) if term else queryset), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Archived jobs"), **(extra_context or {})})

    def _not_here(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
