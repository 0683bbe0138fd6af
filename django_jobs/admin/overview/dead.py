"""The dead letters there are, by queue; and of each type how many of those that failed lately still are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import BooleanField, Count, ExpressionWrapper, Q

from django_jobs.admin.overview.asked import Asked
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import LAST_ENDED
from django_jobs.measures.rates import Rates
from django_jobs.models import Job
from django_jobs.models.clock import for_row

READ = 10_000


@dataclass(frozen=True, slots=True)
class Dead:
    """How many dead letters each queue has, and how many of each type ended in the span, in the queue that is looked at.

    `is_cut`, `is_span_cut`: older ones, older ones of the span were not read.
    """

    queues: Counter[str]
    types: Counter[str]
    is_cut: bool
    is_span_cut: bool


def read(asked: Asked) -> Dead:
    """Count the newest ones, of all queues and types at once."""
    rates: Rates | None = asked.found.get("rates")
    rows = first_rows(Job.objects.using(asked.alias).dead_letters().order_by(*LAST_ENDED), READ).order_by()
    since = for_row(rates.since if rates else asked.now, asked.alias)
    is_new = ExpressionWrapper(Q(finished_at__gte=since), output_field=BooleanField())
    queues: Counter[str] = Counter()
    types: Counter[str] = Counter()
    lately = 0
    for row in rows.values("queue", "type", is_new=is_new).annotate(number=Count("pk")):
        queues[row["queue"]] += row["number"]
        lately += row["number"] if row["is_new"] else 0
        if row["is_new"] and asked.queue in (None, row["queue"]):
            types[row["type"]] += row["number"]
    return Dead(queues, types, queues.total() >= READ, lately >= READ)
