"""What our pages in the admin show in the same way: where one can go, pauses in force, and the overview."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template

from django_jobs.admin import nav, pausing
from django_jobs.admin.addresses import within
from django_jobs.admin.overview import Overview, overview
from django_jobs.models import Worker

register = template.Library()


@register.inclusion_tag("admin/django_jobs/nav.html", takes_context=True)
def jobs_nav(context: Any) -> dict[str, Any]:
    """Show the pages of the admin's part that whoever looks may see."""
    with within(_site_of(context)):
        return {"links": nav.links(context["request"])}


@register.inclusion_tag("admin/django_jobs/pauses.html", takes_context=True)
def jobs_pauses(
    context: Any,
    queue: str = "",
    type: str = "",  # noqa: A002 (the word for it)
    worker: Worker | None = None,
    listed: Iterable[Any] = (),
) -> dict[str, Any]:
    """Show the pauses in force that hold jobs of a queue or type, or what a worker runs; all if none is given."""
    request = context["request"]
    which = pausing.of_worker(worker.queues, worker.types) if worker else pausing.of_jobs(queue, type, listed)
    return shown_pauses(context, pausing.found(request, which))


@register.inclusion_tag("admin/django_jobs/pauses.html", takes_context=True)
def jobs_pauses_found(context: Any, pauses: list[pausing.InForce]) -> dict[str, Any]:
    """Show pauses that were read already."""
    return shown_pauses(context, pauses)


def shown_pauses(context: Any, pauses: list[pausing.InForce]) -> dict[str, Any]:
    return {"pauses": pauses, "here": context["request"].get_full_path(), "csrf_token": context.get("csrf_token")}


@register.simple_tag(takes_context=True)
def jobs_overview(context: Any) -> Overview:
    """Return what the overview shows to whoever looks."""
    with within(_site_of(context)):
        return overview(context["request"])


def _site_of(context: Any) -> str | None:
    """Return the name of the admin site; its index of the app is Django's page, which has no view of ours around it."""
    return getattr(context["request"], "current_app", None)


@register.simple_tag(takes_context=True)
def this_page(context: Any, **changed: str) -> str:
    """Return the address of this page with other words in its query."""
    query = context["request"].GET.copy()
    for name, value in changed.items():
        query[name] = value
    return f"?{query.urlencode()}"
