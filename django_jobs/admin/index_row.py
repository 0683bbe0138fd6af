"""The overview as the first row of the app in the admin's index: its page is the app's own, which only the caption leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps.registry import Apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.addresses import address, page_within
from django_jobs.admin.base import SAFE

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin


class Overview(models.Model):
    """What the index needs to show a row. There is no table, and no row can be asked for."""

    class Meta:
        apps = Apps()  # of its own, so that nobody makes a migration, a content type or permissions of it
        app_label = "django_jobs"
        managed = False
        # Django sorts rows by their names: a space comes before every letter, and is not seen.
        verbose_name_plural = format_lazy(" {}", _("Overview"))


@admin.register(Overview)
class OverviewAdmin(_Admin):
    def get_urls(self) -> list[URLPattern]:
        view = page_within(self.admin_site.name, self.admin_site.admin_view(self.changelist_view))
        return [path("", view, name="django_jobs_overview_changelist")]

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        """Show the row to whoever may see anything of the app."""
        return {"view": self.has_module_permission(request)}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_module_permission(request):
            raise PermissionDenied
        if request.method not in SAFE:
            return HttpResponseNotAllowed(SAFE)
        return HttpResponseRedirect(address("app_list", "django_jobs"))
