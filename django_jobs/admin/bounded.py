"""Pages that may not take long: one that would wait for the database says so instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_jobs.engines.bounded import SECONDS, TooSlow, bounded

__all__ = ["SECONDS", "TooSlow", "bounded", "bounded_page", "too_slow"]

P = ParamSpec("P")


def bounded_page(
    site: admin.AdminSite, view: Callable[Concatenate[HttpRequest, P], HttpResponse]
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Bound a view of the admin, its rendering included: one that is too slow answers with a page that says so.

    Only pages that are read: what is asked for by POST is bounded where it is done, by `bounded`.
    """

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return view(request, *args, **kwargs)
        try:
            with bounded(seconds=SECONDS):
                found = view(request, *args, **kwargs)
                return found.render() if isinstance(found, TemplateResponse) else found
        except TooSlow:
            return too_slow(site, request)

    return answer


def too_slow(site: admin.AdminSite, request: HttpRequest) -> HttpResponse:
    """Return the page that says so."""
    context = {**site.each_context(request), "title": _("The database is too slow"), "seconds": SECONDS}
    return TemplateResponse(request, "admin/django_jobs/too_slow.html", context, status=503)
