"""Keeping statistics small: minutes that are long over become hours, and hours that nobody asks for are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from django_jobs.engines.base import Engine
from django_jobs.models import Stat
from django_jobs.models.clock import database_now, for_row
from django_jobs.models.stat import COUNTERS, MINUTE
from django_jobs.queue import stat_totals

MINUTES_FOR = timedelta(days=1)
HOUR = 3600
BATCH = 1000
_SUMS = (*COUNTERS, "run_seconds", "wait_seconds")


def fold(engine: Engine) -> int:
    """Make hours of up to a thousand minutes that ended more than a day ago; return how many minutes those were."""
    before = for_row(database_now(engine.alias) - MINUTES_FOR, engine.alias)
    with transaction.atomic(using=engine.alias):
        old = Stat.objects.using(engine.alias).filter(seconds__lt=HOUR, minute__lt=before).order_by("minute", "id")
        # Of two who fold, the second takes what the first leaves; on SQLite there is one.
        rows = list(old.select_for_update(skip_locked=engine.reaps_by_lease)[:BATCH])
        hours: dict[tuple[datetime, str, str], list[Stat]] = {}
        for row in rows:
            hour = row.minute.replace(minute=0, second=0, microsecond=0)
            hours.setdefault((hour, row.queue, row.type), []).append(row)
        for (hour, queue, job_type), parts in sorted(hours.items()):
            _add(engine, Stat(minute=hour, seconds=HOUR, queue=queue, type=job_type, runs=[], waits=[]), parts)
        stat_totals.add(engine, [row for row in rows if row.seconds == MINUTE])
        Stat.objects.using(engine.alias).filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def forget(engine: Engine, kept_for: float) -> int:
    """Delete up to a thousand rows from more than so many seconds ago; return how many those were."""
    stats = Stat.objects.using(engine.alias)
    before = for_row(database_now(engine.alias) - timedelta(seconds=kept_for), engine.alias)
    ids = list(stats.filter(minute__lt=before).order_by("minute").values_list("pk", flat=True)[:BATCH])
    return stats.filter(pk__in=ids).delete()[0] if ids else 0


def _add(engine: Engine, hour: Stat, parts: Iterable[Stat]) -> None:
    """Add rows to that of their hour, which is there if some of its minutes were folded before."""
    same = {"minute": hour.minute, "seconds": HOUR, "queue": hour.queue, "type": hour.type, "incarnation": ""}
    found = Stat.objects.using(engine.alias).select_for_update().filter(**same).first() or hour
    for part in parts:
        for name in _SUMS:
            setattr(found, name, getattr(found, name) + getattr(part, name))
        for name in ("runs", "waits"):
            setattr(found, name, _sum(getattr(found, name), getattr(part, name)))
    found.save(using=engine.alias)


def _sum(one: list[int], other: list[int]) -> list[int]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [number + (shorter[index] if index < len(shorter) else 0) for index, number in enumerate(longer)]
