from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_jobs import registry
from django_jobs.admin import figures, pausing
from django_jobs.admin.addresses import address, jobs_address
from django_jobs.admin.listing import COUNT_LIMIT
from django_jobs.admin.nav import may_pause
from django_jobs.admin.overview.asked import Asked
from django_jobs.admin.overview.dead import Dead
from django_jobs.conf import conf
from django_jobs.engines.depths import Depths, QueueDepth, depths
from django_jobs.measures.counted import Counted
from django_jobs.measures.rates import Rates
from django_jobs.models import Pause

QUEUES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that stands above all; `is_bad` when somebody should look, for which `hint` is why."""

    name: str
    label: str
    text: str
    url: str = ""
    hint: str = ""
    is_bad: bool = False


def depths_of(asked: Asked) -> Depths:
    return depths(asked.engine, COUNT_LIMIT)


def tiles(asked: Asked) -> list[Tile]:
    found: Depths = asked.found["depths"]
    due = sum(queue.due for queue in found.queues)
    dead = max(found.dead, found.failed) >= found.most
    tiles = [
        Tile("due", _("due now"), figures.capped(due, _is_full(found, "due")), jobs_address("due")),
        _oldest(found),
        Tile("running", _("running"), _total(found, "running"), jobs_address("running")),
        *_minute(asked),
        Tile(
            "dead",
            _("dead letters"),
            figures.capped(found.dead_letters, dead),
            jobs_address("dead-letters"),
            _dead_hint(found.dead_letters),
            bool(_dead_hint(found.dead_letters)),
        ),
    ]
    return [*tiles, _workers(asked)] if "workers" in asked.found else tiles


def lines(asked: Asked) -> dict[str, Any]:
    """Return the rows of the table of queues, and how many are not shown."""
    found: Depths = asked.found["depths"]
    names = {queue.queue for queue in found.queues} | set(registry.queues())
    rates = asked.found.get("rates")
    if rates:
        names |= set(rates.queues)
    if dead := asked.found.get("dead"):
        names |= set(dead.queues)
    names |= {pause.name for pause in asked.found.get("pauses", ()) if pause.kind == Pause.Kind.QUEUE}
    known = {queue.queue: queue for queue in found.queues}
    every = [known.get(name) or QueueDepth(name) for name in sorted(names)]
    every.sort(key=lambda queue: (queue.due + queue.running == 0, queue.queue))
    return {
        "lines": [_line(asked, queue) for queue in every[:QUEUES_SHOWN]],
        "more": max(0, len(every) - QUEUES_SHOWN),
        "minute_at": rates.minute_at if rates else None,
    }


def _line(asked: Asked, queue: QueueDepth) -> dict[str, Any]:
    found: Depths = asked.found["depths"]
    request, rates = asked.request, asked.found.get("rates")
    minute = rates.minute.get(queue.queue, Counted()) if rates else None
    pauses = [
        pause for pause in asked.found.get("pauses", ()) if pause.kind == Pause.Kind.QUEUE and pause.name == queue.queue
    ]
    return {
        "name": queue.queue,
        "url": jobs_address(queue=queue.queue),
        "due": figures.capped(queue.due, _is_full(found, "due", queue.queue)),
        "due_url": jobs_address("due", queue=queue.queue) if queue.due else "",
        "later": figures.capped(queue.later, _is_full(found, "later", queue.queue)),
        "later_url": jobs_address("later", queue=queue.queue) if queue.later else "",
        "parked": _number(found, queue, "parked"),
        "parked_url": jobs_address("parked", queue=queue.queue) if queue.parked + queue.suspects else "",
        "suspects": _number(found, queue, "suspects"),
        "has_parked": queue.parked,
        "has_suspects": queue.suspects,
        "running": _number(found, queue, "running"),
        "running_url": jobs_address("running", queue=queue.queue) if queue.running else "",
        "oldest": figures.seconds(queue.oldest),
        "is_late": _is_late(queue.oldest) and not pauses,
        "done": figures.number(minute.done) if minute else "",
        "failed": figures.number(minute.unsuccessful) if minute else "",
        "has_failed": minute.unsuccessful if minute else 0,
        **_dead(asked, queue.queue),
        "pauses": pauses,
        "pause_url": pause_address(request, Pause.Kind.QUEUE, queue.queue) if not pauses else "",
    }


def _dead(asked: Asked, queue: str) -> dict[str, str]:
    found: Dead | None = asked.found.get("dead")
    if found is None:
        return {"dead": figures.NOTHING, "dead_url": jobs_address("dead-letters", queue=queue)}
    number = found.queues[queue]
    # Of one that has none among the newest, older ones may not have been read.
    return {
        "dead": figures.capped(number, found.is_cut),
        "dead_url": jobs_address("dead-letters", queue=queue) if number or found.is_cut else "",
    }


def pause_address(request: HttpRequest, kind: str, name: str = "") -> str:
    """Return where a queue or type can be paused, from where one comes back to this page; empty for who may not."""
    if not may_pause(request):
        return ""
    return pausing.form_address(kind, name, request.path)


def _is_full(found: Depths, kind: str, queue: str | None = None) -> bool:
    """Tell whether a number of what waits is as much as was counted, and may be more."""
    return any(getattr(lane, kind) >= found.most for lane in found.lanes if queue in (None, lane.queue))


def _number(found: Depths, queue: QueueDepth, kind: str) -> str:
    """Return how many there are; where the rows that are counted came to an end, no queue's number is surely all."""
    value = getattr(queue, kind)
    return figures.capped(value, sum(getattr(each, kind) for each in found.queues) >= found.most)


def _total(found: Depths, kind: str) -> str:
    total = sum(getattr(queue, kind) for queue in found.queues)
    return figures.capped(total, total >= found.most)


def _minute(asked: Asked) -> list[Tile]:
    rates: Rates | None = asked.found.get("rates")
    if not rates:
        return []
    done, failed = rates.last_minute
    return [
        Tile("done", _("done a minute"), figures.number(done)),
        Tile("failed", _("failed a minute"), figures.number(failed), is_bad=rates.many_failed),
    ]


def _oldest(found: Depths) -> Tile:
    is_late = _is_late(found.oldest)
    hint = _("longer than QUEUE_AGE_ALERT") if is_late else ""
    return Tile("oldest", _("oldest due for"), figures.seconds(found.oldest), hint=hint, is_bad=is_late)


def _is_late(age: float | None) -> bool:
    limit = conf().queue_age_alert
    return limit is not None and age is not None and age > limit


def _dead_hint(dead: int) -> str:
    limit = conf().dead_letter_alert
    return _("more than DEAD_LETTER_ALERT") if limit is not None and dead > limit else ""


def _workers(asked: Asked) -> Tile:
    found = asked.found["workers"]
    text = figures.number(found.live)
    if found.total > found.live:
        text = _("%(live)s of %(all)s") % {"live": text, "all": figures.number(found.total)}
    quiet = found.live - found.working
    hint = "" if found.live else _("nothing runs: start runworkers")
    if quiet:
        hint = _("asked to claim nothing more: %s") % figures.number(quiet)
    url = address("django_jobs_worker_changelist")
    return Tile("workers", _("workers live"), text, url, hint, is_bad=not found.working)
