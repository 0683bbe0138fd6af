from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from django_jobs.admin.listing import CappedPaginator
from django_jobs.engines import jobs_alias

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin


class QueueAdmin(_Admin):
    """Shows rows of the jobs' database, each with that database's clock. Nobody changes them by a form."""

    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # it would count the rows of every choice
    paginator = CappedPaginator
    list_per_page = 50
    list_max_show_all = 0
    sortable_by = ()  # an index serves the order of each list, and no other order

    class Media:
        css = {"all": ["django_jobs/admin.css"]}
        js = ["django_jobs/admin.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        model: type[Model] = self.model
        found: QuerySet[Any] = model._default_manager.using(jobs_alias()).annotate(clock=Now())
        return found

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
