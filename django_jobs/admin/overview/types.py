"""Which types fail, and how quick they are; and how many of those that failed are still dead letters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.utils.translation import gettext as _

from django_jobs.admin import figures, shown
from django_jobs.admin.addresses import jobs_address
from django_jobs.admin.overview.asked import Asked, sort_of
from django_jobs.admin.overview.plots import bar
from django_jobs.admin.overview.queues import pause_address
from django_jobs.admin.overview.rates import SHARES
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import LAST_ENDED
from django_jobs.measures.counted import Counted, Quantile
from django_jobs.measures.rates import Rates
from django_jobs.models import Job, Pause
from django_jobs.models.clock import for_row

SHOWN = 50
DEAD_READ = 10_000


@dataclass(frozen=True, slots=True)
class StillDead:
    """How many dead letters of each type ended in the span; `is_cut`: older ones may not have been read."""

    numbers: dict[str, int]
    is_cut: bool


def still_dead(asked: Asked) -> StillDead | None:
    """Count what failed in the span and was not requeued since, of all types at once; None without a span."""
    rates: Rates | None = asked.found.get("rates")
    if rates is None:
        return None
    rows = Job.objects.using(asked.alias).dead_letters().filter(finished_at__gte=for_row(rates.since, asked.alias))
    newest = first_rows(rows.order_by(*LAST_ENDED), DEAD_READ).order_by().values("type")
    numbers = {row["type"]: row["number"] for row in newest.annotate(number=Count("pk"))}
    return StillDead(numbers, sum(numbers.values()) >= DEAD_READ)


def _p95(found: Quantile | None) -> float:
    """Return what it is ordered by: those of the last class, which has no end, come before all others."""
    if found is None:
        return 0.0
    return math.inf if found.high is None else found.high


_ORDERS: dict[str, Callable[[str, Counted], Any]] = {
    "failures": lambda name, counted: (-counted.unsuccessful, -counted.retried, -counted.done, name),
    "rate": lambda name, counted: (-(counted.failure_rate or 0.0), -counted.unsuccessful, -counted.done, name),
    "done": lambda name, counted: (-counted.done, name),
    "wait": lambda name, counted: (-_p95(counted.wait(0.95)), name),
    "run": lambda name, counted: (-_p95(counted.run(0.95)), name),
    "type": lambda name, counted: name,
}


def lines(asked: Asked) -> dict[str, Any]:
    """Return the rows of the table of types, and how many are not shown."""
    order = _ORDERS[sort_of(asked.request)]
    pauses = {pause.name: pause for pause in asked.found.get("pauses", ()) if pause.kind == Pause.Kind.TYPE}
    every = {**{name: Counted() for name in pauses}, **asked.found["rates"].types}
    chosen = sorted(every.items(), key=lambda pair: order(*pair))
    return {
        "types": [_line(asked, name, counted, pauses.get(name)) for name, counted in chosen[:SHOWN]],
        "more_types": max(0, len(chosen) - SHOWN),
        # Of one that has not run yet, and so has no row.
        "pause_url": pause_address(asked.request, Pause.Kind.TYPE),
    }


def _line(asked: Asked, name: str, counted: Counted, pause: Any) -> dict[str, Any]:
    return {
        "name": name,
        "shown": shown.name(name),
        "url": jobs_address(type=name),
        "done": figures.number(counted.done),
        "failed": figures.number(counted.unsuccessful),
        "has_failed": counted.unsuccessful,
        **_dead(asked, name),
        "failure_rate": figures.share(counted.failure_rate),
        "bar": bar(counted.failure_rate or 0.0, "bad"),
        "retried": figures.number(counted.retried),
        "waits": [figures.quantile(counted.wait(share)) for share in SHARES.values()],
        "runs": [figures.quantile(counted.run(share)) for share in SHARES.values()],
        "pause": pause,
        "pause_url": "" if pause else pause_address(asked.request, Pause.Kind.TYPE, name),
    }


def _dead(asked: Asked, name: str) -> dict[str, str]:
    """Return how many of a type are still dead, and where exactly those are listed."""
    found: StillDead | None = asked.found.get("still_dead")
    if found is None:
        return {}
    number = found.numbers.get(name, 0)
    since = asked.found["rates"].since.isoformat()
    return {
        "still_dead": _("still dead: %s") % figures.capped(number, found.is_cut),
        "dead_url": jobs_address("dead-letters", type=name, since=since) if number else "",
    }
