"""Which types fail, and how quick they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from django_jobs.admin import figures, shown
from django_jobs.admin.addresses import jobs_address
from django_jobs.admin.overview.asked import Asked, sort_of
from django_jobs.admin.overview.dead import Dead
from django_jobs.admin.overview.plots import bar
from django_jobs.admin.overview.queues import pause_address
from django_jobs.admin.overview.rates import SHARES
from django_jobs.measures.counted import Counted, Quantile
from django_jobs.models import Pause

SHOWN = 50


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
        "waits": [(name, figures.quantile(counted.wait(share))) for name, share in SHARES.items()],
        "runs": [(name, figures.quantile(counted.run(share))) for name, share in SHARES.items()],
        "pause": pause,
        "pause_url": "" if pause else pause_address(asked.request, Pause.Kind.TYPE, name),
    }


def _dead(asked: Asked, name: str) -> dict[str, str]:
    """Return how many of a type are still dead, and where exactly those are listed."""
    found: Dead | None = asked.found.get("dead")
    if found is None:
        return {}
    number = found.types.get(name, 0)
    within = {"since": asked.found["rates"].since.isoformat(), **({"queue": asked.queue} if asked.queue else {})}
    return {
        "still_dead": _("still dead: %s") % figures.capped(number, found.is_span_cut),
        "dead_url": jobs_address("dead-letters", type=name, **within) if number else "",
    }
