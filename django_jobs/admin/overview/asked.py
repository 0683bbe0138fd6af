from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from django_jobs.admin.asked import SPANS as LABELS
from django_jobs.admin.asked import midnight
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.measures.rates import SPANS, Span, span_since

TODAY = "today"
# By their names in an address, with the words that the lists have for them.
SPAN_LABELS = {"1h": LABELS["hour"], TODAY: LABELS["today"], "24h": LABELS["day"], "7d": LABELS["week"]}
SORTS = ("failures", "rate", "done", "wait", "run", "type")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants to see, when, and what has been found of it so far, by the name of the part."""

    request: HttpRequest
    now: datetime
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def alias(self) -> str:
        return jobs_alias()

    @property
    def engine(self) -> Engine:
        return engine(self.alias)

    @property
    def span_name(self) -> str:
        return span_of(self.request)

    @property
    def queue(self) -> str | None:
        return queue_of(self.request)

    @property
    def span(self) -> Span:
        name = self.span_name
        return span_since(midnight(self.now), self.now) if name == TODAY else SPANS[name]


def span_of(request: HttpRequest) -> str:
    name = request.GET.get("span", "")
    return name if name in SPAN_LABELS else next(iter(SPAN_LABELS))


def queue_of(request: HttpRequest) -> str | None:
    """Return the queue of which alone it is to be shown what was done; None for all."""
    return request.GET.get("queue") or None


def sort_of(request: HttpRequest) -> str:
    name = request.GET.get("types", "")
    return name if name in SORTS else SORTS[0]
