"""Where the pages are: in the admin site whose page is made, for a project may have several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse

P = ParamSpec("P")
_site: ContextVar[str | None] = ContextVar("_site", default=None)


@contextmanager
def within(site: str | None) -> Iterator[None]:
    """Have addresses be those of the admin site of this name."""
    before = _site.set(site)
    try:
        yield
    finally:
        _site.reset(before)


def page_within(
    site: str, view: Callable[Concatenate[HttpRequest, P], HttpResponse]
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Have a view of the admin, its rendering included, lead to pages of its own site."""

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        request.current_app = site  # where Django itself looks for it
        with within(site):
            found = view(request, *args, **kwargs)
            return found.render() if isinstance(found, TemplateResponse) else found

    return answer


def address(name: str, *args: object, query: dict[str, str] | None = None) -> str:
    """Return where a page is, by the name of its URL; empty if the site has no such page."""
    try:
        url = reverse(f"admin:{name}", args=args, current_app=_site.get())
    except NoReverseMatch:
        return ""
    return f"{url}?{urlencode(query)}" if query else url


def jobs_address(state: str = "", **narrowed: str) -> str:
    """Return where the jobs in a state and of a queue or type are listed; all dead letters have a page of their own."""
    if state == "dead-letters" and not narrowed and (page := address("django_jobs_job_dead_letters")):
        return page
    return address("django_jobs_job_changelist", query={"state": state, **narrowed} if state else narrowed)
