from __future__ import annotations

from typing import Any

from django import template

from django_jobs.admin.asked import bulk_address
from django_jobs.admin.bulk_shown import OFFERS
from django_jobs.admin.nav import may_bulk
from django_jobs.models import BulkAct
from django_jobs.queue.bulk_acts import ACTS, fits

register = template.Library()


@register.simple_tag(takes_context=True)
def bulk_links(context: Any) -> list[dict[str, Any]]:
    """Return what a person may do to all that the filter of a list of jobs finds: nothing without one, and on other lists."""
    request, shown = context["request"], context.get("cl")
    if not getattr(shown, "narrowed", False) or shown.archived or not shown.page.keys:
        return []
    sought = shown.sought
    destructive = (BulkAct.Act.CANCEL, BulkAct.Act.DELETE)
    return [
        {"act": str(act), "url": bulk_address(act, sought), "text": OFFERS[act], "destroys": act in destructive}
        for act in ACTS
        if fits(act, sought) and may_bulk(request, act)
    ]
