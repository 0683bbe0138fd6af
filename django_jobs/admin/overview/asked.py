from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.measures.rates import SPANS, Span

SORTS = ("failures", "done", "wait", "run", "type")


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
    def span(self) -> Span:
        return SPANS[self.span_name]


def span_of(request: HttpRequest) -> str:
    name = request.GET.get("span", "")
    return name if name in SPANS else next(iter(SPANS))


def sort_of(request: HttpRequest) -> str:
    name = request.GET.get("types", "")
    return name if name in SORTS else SORTS[0]
