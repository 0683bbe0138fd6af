from __future__ import annotations

from typing import Any

from django import template

from django_jobs.admin.asked import sought_of
from django_jobs.admin.bulk import address_of, may
from django_jobs.admin.bulk_shown import OFFERS
from django_jobs.exceptions import InvalidJob
from django_jobs.models import BulkAct, Job
from django_jobs.queue.bulk_acts import ACTS, fits
from django_jobs.queue.sought import Sought

register = template.Library()


@register.simple_tag(takes_context=True)
def bulk_links(context: Any) -> list[dict[str, Any]]:
    """Return what a person may do to all that the filter of a list of jobs finds: nothing on other lists.

    The filter is `sought` of the page or, without it, what the address says.
    """
    request, shown = context["request"], context.get("cl")
    if shown is None or shown.model is not Job:
        return []
    try:
        given = context.get("sought")
        sought = given if isinstance(given, Sought) else sought_of(request.GET)
    except InvalidJob:
        return []
    destructive = (BulkAct.Act.CANCEL, BulkAct.Act.DELETE)
    return [
        {"act": str(act), "url": address_of(act, sought), "text": OFFERS[act], "destroys": act in destructive}
        for act in ACTS
        if fits(act, sought) and may(request, act)
    ]
