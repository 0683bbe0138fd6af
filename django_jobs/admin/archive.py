from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin.filters import NEWEST, QueueFilter, TypeFilter
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.listing import JobChangeList, numbered
from django_jobs.models import ArchivedJob, Job

DEAD_LETTERS = "dead-letters"


class EndFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("done", gettext_lazy("done")),
            (DEAD_LETTERS, gettext_lazy("dead letters (dead or failed)")),
            ("cancelled", gettext_lazy("cancelled")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ArchivedJob]) -> QuerySet[ArchivedJob]:
        match self.value():
            case None | "":
                return queryset
            case "dead-letters":
                return queryset.filter(status__in=Job.DEAD_LETTERS)
            case status:
                return queryset.filter(status=status) if status in Job.Status.values else queryset.none()


class ArchiveChangeList(JobChangeList):
    """The list of archived jobs, of which no index tells more than the id."""

    def reads_rows(self) -> bool:
        return any(self.params.get(name) for name in ("state", "queue", "type")) and not self.query


@admin.register(ArchivedJob)
class ArchivedJobAdmin(JobAdmin):
    """Shows archived jobs as jobs are shown. A requeue makes a new job."""

    acts = ("requeue",)
    actions = list(acts)
    list_filter = (EndFilter, QueueFilter, TypeFilter)
    search_help_text = gettext_lazy("The id of a job.")
    change_list_template = "admin/django_jobs/job/change_list.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return ArchiveChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return NEWEST

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(pk__in=numbered(term)) if term else queryset), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Archived jobs"), **(extra_context or {})})

    def _not_here(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
