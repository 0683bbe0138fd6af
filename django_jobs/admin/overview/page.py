from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.bounded import SECONDS, TooSlow, bounded
from django_jobs.admin.nav import sees
from django_jobs.admin.overview import dead, health, queues, rates, schedules, types, workers
from django_jobs.admin.overview.asked import SPAN_LABELS, Asked, queue_of, sort_of, span_of
from django_jobs.admin.overview.concerns import concerns
from django_jobs.admin.overview.looked_at import looked_at
from django_jobs.admin.pausing import in_force
from django_jobs.models import Job, Pause, Schedule, Worker

# After so many that the database did not answer in time it is asked nothing more.
PATIENCE = 2
REFRESH_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is read for the page, and whether whoever asks may see it; later ones can use what was found."""

    name: str
    label: Any
    may_see: bool
    read: Callable[[Asked], Any]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows, by part; `late` are the labels of those that the database did not answer in time."""

    at: datetime | None
    found: dict[str, Any]
    late: list[str]
    span: str
    sort: str
    queue: str | None

    refresh = REFRESH_SECONDS

    @property
    def seconds(self) -> float:
        return SECONDS

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [{"name": name, "label": label, "is_here": name == self.span} for name, label in SPAN_LABELS.items()]

    @property
    def span_label(self) -> Any:
        return SPAN_LABELS[self.span]


def overview(request: HttpRequest) -> Overview:
    """Return what whoever asks may see, each question bounded."""
    jobs, processes = sees(request, Job), sees(request, Worker)
    parts = [
        Part("pauses", _("pauses"), jobs or processes or sees(request, Pause), in_force),
        Part("depths", _("what waits"), jobs, queues.depths_of),
        Part("workers", _("workers"), processes, workers.read),
        Part("running", _("what runs"), jobs and processes, workers.running),
        Part("schedules", _("schedules"), sees(request, Schedule), schedules.read),
        Part("rates", _("statistics"), jobs, rates.read),
        Part("dead", _("dead letters by queue and type"), jobs, dead.read),
        Part("health", _("the state of the tables"), jobs, health.read),
    ]
    asked, late = _read(request, [part for part in parts if part.may_see])
    found = dict(asked.found) if asked else {}
    if asked and "depths" in found:
        found["tiles"], found["queues"] = queues.tiles(asked), queues.lines(asked)
    if asked:
        found["concerns"], found["well"] = concerns(asked)
    if not late and asked and "depths" in found and "workers" in found and not found["concerns"]:
        found["looked_at"] = looked_at(asked)
    if asked and "rates" in found:
        found["rates"] = {**rates.shown_part(asked), **types.lines(asked)}
    if asked and "workers" in found:
        found["workers"] = workers.lines(asked)
    return Overview(asked.now if asked else None, found, late, span_of(request), sort_of(request), queue_of(request))


def _read(request: HttpRequest, parts: Sequence[Part]) -> tuple[Asked | None, list[str]]:
    """Read the parts in one transaction; when one is too slow, which ends that, the others in another."""
    asked: Asked | None = None
    late: list[str] = []
    left = list(parts)
    while left and len(late) < PATIENCE:
        try:
            with bounded(seconds=SECONDS) as now:
                asked = asked or Asked(request, now)
                while left:
                    asked.found[left[0].name] = left[0].read(asked)
                    del left[0]
        except TooSlow:
            late.append(str(left.pop(0).label))
    return asked, late + [str(part.label) for part in left]
