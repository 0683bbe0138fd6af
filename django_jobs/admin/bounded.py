"""Pages that may not take long: one that would wait for the database says so instead, and has done nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.engines.bounded import SECONDS, TooSlow, bounded

__all__ = [
    "SECONDS",
    "TooSlow",
    "acting_seconds",
    "bounded",
    "bounded_act",
    "bounded_log",
    "bounded_page",
    "said",
    "too_slow",
]

P = ParamSpec("P")
READING = ("GET", "HEAD")
IDS_SHOWN = 10


def acting_seconds() -> float:
    """Return how long a statement of an act may take: longer than one waits for a row that another transaction holds."""
    return conf().enqueue_timeout + SECONDS


@contextmanager
def bounded_act() -> Iterator[None]:
    """Return a transaction for one of several acts. Raises TooSlow when a statement took too long; nothing of it is kept."""
    with bounded(seconds=acting_seconds()), transaction.atomic(using=jobs_alias()):
        yield


def bounded_page(
    site: admin.AdminSite,
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
    *,
    acts_one_by_one: Callable[[HttpRequest], bool] = lambda request: False,
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Bound a view of the admin, its rendering included: one that is too slow answers with a page that says so.

    So it is one transaction on PostgreSQL, and what is asked for by POST is done in full or not at all. `acts_one_by_one`
    tells which requests are not, because workers would wait for all rows until the last is done; those bound what they do by
    `bounded_act`.
    """

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        seconds = SECONDS if request.method in READING else acting_seconds()
        try:
            if request.method == "POST" and acts_one_by_one(request):
                return view(request, *args, **kwargs)
            with bounded(seconds=seconds):
                found = view(request, *args, **kwargs)
                return found.render() if isinstance(found, TemplateResponse) else found
        except TooSlow:
            return too_slow(site, request, seconds)

    return answer


def bounded_log() -> AbstractContextManager[object]:
    """Bound what is read of what people did, where that is on another database than the jobs."""
    alias = router.db_for_read(LogEntry)
    return nullcontext() if alias == jobs_alias() else bounded(alias, SECONDS)


def too_slow(site: admin.AdminSite, request: HttpRequest, seconds: float) -> HttpResponse:
    """Return the page that says so, and nothing of what was said to be done."""
    getattr(messages.get_messages(request), "_queued_messages", []).clear()
    context = {**site.each_context(request), "title": _("The database is too slow"), "seconds": seconds}
    return TemplateResponse(request, "admin/django_jobs/too_slow.html", context, status=503)


def said(left: Sequence[int]) -> str:
    """Return what is said when one of several acts was too slow: to which rows nothing was done."""
    ids = ", ".join([*map(str, left[:IDS_SHOWN]), *(["..."] if len(left) > IDS_SHOWN else [])])
    words = {"seconds": f"{acting_seconds():g}", "ids": ids}
    return (
        _("The database did not answer within %(seconds)s s, and was told to stop. Nothing was done to %(ids)s.")
        % words
    )
