from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern

from django_jobs.admin.addresses import page_within
from django_jobs.admin.bounded import acting_seconds, bounded, bounded_log, bounded_page
from django_jobs.admin.listing import CappedPaginator
from django_jobs.engines import jobs_alias

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin

SAFE = ("GET", "HEAD", "OPTIONS")


class QueueAdmin(_Admin):
    """Shows rows of the jobs' database, each with that database's clock. Nobody changes them by a form."""

    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # it would count the rows of every choice
    paginator = CappedPaginator
    list_per_page = 50
    list_max_show_all = 0
    sortable_by = ()  # an index serves the order of each list, and no other order

    class Media:
        css = {"all": ["django_jobs/beside.css", "django_jobs/admin.css", "django_jobs/overview.css"]}
        js = ["django_jobs/admin.js"]

    @property
    def urls(self) -> list[URLPattern]:
        """All that `get_urls` has: each page is bounded, and each POST of who may only look is refused."""
        return [
            URLPattern(found.pattern, self._guarded(found.callback), found.default_args, found.name)
            for found in self.get_urls()
        ]

    def _guarded(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        guarded = bounded_page(self.admin_site, view, acts_one_by_one=self.acts_one_by_one)
        return page_within(self.admin_site.name, _refusing_viewers(guarded))

    def acts_one_by_one(self, request: HttpRequest) -> bool:
        """Tell whether rows are acted upon one after the other, each in a `bounded_act` of its own."""
        return False

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        with bounded_log():
            found = super().history_view(request, object_id, extra_context)
            return found.render() if isinstance(found, TemplateResponse) else found

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        with bounded(seconds=acting_seconds()) if self.acts_one_by_one(request) else nullcontext():
            return super().get_changelist_instance(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        model: type[Model] = self.model
        found: QuerySet[Any] = model._default_manager.using(jobs_alias()).annotate(clock=Now())
        return found

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return False  # others than those of a list's own filters could ask for a look at every row

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


def _refusing_viewers(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Who has not logged in is sent to do so.
        if request.method not in SAFE and request.user.is_authenticated and not _may_act(request.user):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


def _may_act(user: Any) -> bool:
    """Tell whether there may be anything of ours that somebody may do: whoever may view alone may not.

    Of who has nothing by name, as a superuser before permissions were made, the view itself asks.
    """
    ours = {found for found in user.get_all_permissions() if found.startswith("django_jobs.")}
    return not ours or not all(found.startswith("django_jobs.view_") for found in ours)
