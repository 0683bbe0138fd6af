"""Questions that may not take long: a page that would wait for the database says so instead, and the database is let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import admin
from django.db import OperationalError, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_jobs.engines import jobs_alias
from django_jobs.exceptions import JobsError

P = ParamSpec("P")
SECONDS = 5.0
QUERY_CANCELED = "57014"
_TAKE = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
_GIVE_BACK = "SELECT set_config('statement_timeout', %s, true)"


class TooSlow(JobsError):
    """A question of a page took longer than it may; the database has stopped working at it."""


@contextmanager
def bounded(alias: str | None = None, seconds: float = SECONDS) -> Iterator[None]:
    """Let no statement to a database, that of the jobs if none is named, take longer than so many seconds.

    It makes a transaction, or a savepoint in the caller's. Raises TooSlow when one took longer; then nothing of what was
    done within is kept. On SQLite, where one process reads its own file, nothing is bounded. Can be used as a decorator.
    """
    alias = alias or jobs_alias()
    if connections[alias].vendor != "postgresql":
        yield
        return
    is_outermost = not connections[alias].in_atomic_block
    try:
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(_TAKE, [str(max(1, round(seconds * 1000)))])
                before, _now = cursor.fetchone()
            yield
            if not is_outermost:  # the setting would last until the caller's own end
                with connections[alias].cursor() as cursor:
                    cursor.execute(_GIVE_BACK, [before])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED:
            raise
        raise TooSlow(f"The database did not answer within {seconds:g} s.") from error


def bounded_page(
    view: Callable[Concatenate[Any, HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[Any, HttpRequest, P], HttpResponse]:
    """Bound a view of a ModelAdmin, its rendering included: one that is too slow answers with a page that says so.

    Only pages that are read: what is asked for by POST is bounded where it is done, by `bounded`.
    """

    @wraps(view)
    def answer(self: admin.ModelAdmin[Any], request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return view(self, request, *args, **kwargs)
        try:
            with bounded(seconds=SECONDS):
                found = view(self, request, *args, **kwargs)
                return found.render() if isinstance(found, TemplateResponse) else found
        except TooSlow:
            return too_slow(self.admin_site, request)

    return answer


def too_slow(site: admin.AdminSite, request: HttpRequest) -> HttpResponse:
    """Return the page that says so."""
    context = {**site.each_context(request), "title": _("The database is too slow"), "seconds": SECONDS}
    return TemplateResponse(request, "admin/django_jobs/too_slow.html", context, status=503)
