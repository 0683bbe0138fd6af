"""What is counted beside the runs of workers; and keeping statistics small.

Minutes that are over for an hour become tens of minutes, those of yesterday hours, and what nobody asks for is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from django_jobs.engines.base import Engine
from django_jobs.models import Stat
from django_jobs.models.clock import database_now, for_row
from django_jobs.models.stat import LAST_ATTEMPT, MINUTE, SUMS
from django_jobs.queue import stat_totals

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# What rows become, in seconds, when they are of so long ago, up to so long.
FOLDS = ((600, HOUR, DAY), (3600, DAY, None))
BATCH = 1000


class Counted:
    """What one transaction has done, to be stored with it: in rows of its own, which nobody else writes or waits for."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], dict[str, int]] = {}
        self._attempts: dict[tuple[str, str], list[int]] = {}

    def add(self, queue: str, job_type: str, counter: str, number: int = 1) -> None:
        row = self._rows.setdefault((queue, job_type), {})
        row[counter] = row.get(counter, 0) + number

    def end(self, queue: str, job_type: str, status: str, attempt: int) -> None:
        """Count a job that ended for good in its so manyth attempt."""
        self.add(queue, job_type, status)
        attempts = self._attempts.setdefault((queue, job_type), [0] * LAST_ATTEMPT)
        attempts[min(attempt, LAST_ATTEMPT) - 1] += 1

    def store(self, engine: Engine, now: datetime) -> None:
        """Write what was counted into the minute of `now`, a time by the database's clock."""
        minute = for_row(_start(now, 60), engine.alias)
        writer = uuid.uuid4().hex
        rows = [
            Stat(
                minute=minute,
                queue=queue,
                type=job_type,
                incarnation=writer,
                runs=[],
                waits=[],
                attempts=self._attempts.get((queue, job_type), []),
                **counts,
            )
            for (queue, job_type), counts in self._rows.items()
        ]
        if rows:
            Stat.objects.using(engine.alias).bulk_create(rows)


def fold(engine: Engine) -> int:
    """Fold up to a thousand rows of each length that are old enough; return how many, at most, those of one length were."""
    return max(_fold(engine, *terms) for terms in FOLDS)


def _fold(engine: Engine, seconds: int, age: timedelta, oldest: timedelta | None) -> int:
    now = database_now(engine.alias)
    with transaction.atomic(using=engine.alias):
        old = Stat.objects.using(engine.alias).filter(seconds__lt=seconds, minute__lt=for_row(now - age, engine.alias))
        old = old if oldest is None else old.filter(minute__gte=for_row(now - oldest, engine.alias))
        # Of two who fold, the second takes what the first leaves; on SQLite there is one.
        rows = list(old.order_by("minute", "id").select_for_update(skip_locked=engine.reaps_by_lease)[:BATCH])
        spans: dict[tuple[datetime, str, str], list[Stat]] = {}
        for row in rows:
            spans.setdefault((_start(row.minute, seconds), row.queue, row.type), []).append(row)
        for (start, queue, job_type), parts in sorted(spans.items()):
            _add(engine, Stat(minute=start, seconds=seconds, queue=queue, type=job_type, runs=[], waits=[]), parts)
        stat_totals.add(engine, [row for row in rows if row.seconds == MINUTE])
        Stat.objects.using(engine.alias).filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _start(moment: datetime, seconds: int) -> datetime:
    """Return when a span of so many seconds began; they divide an hour."""
    into = (moment.minute * 60 + moment.second) % seconds
    return moment.replace(microsecond=0) - timedelta(seconds=into)


def forget(engine: Engine, kept_for: float) -> int:
    """Delete up to a thousand rows from more than so many seconds ago; return how many those were."""
    stats = Stat.objects.using(engine.alias)
    before = for_row(database_now(engine.alias) - timedelta(seconds=kept_for), engine.alias)
    ids = list(stats.filter(minute__lt=before).order_by("minute").values_list("pk", flat=True)[:BATCH])
    return stats.filter(pk__in=ids).delete()[0] if ids else 0


def _add(engine: Engine, span: Stat, parts: Iterable[Stat]) -> None:
    """Add rows to that of their span, which is there if some of it was folded before."""
    same = {
        "minute": span.minute,
        "seconds": span.seconds,
        "queue": span.queue,
        "type": span.type,
        "incarnation": "",
    }
    found = Stat.objects.using(engine.alias).select_for_update().filter(**same).first() or span
    for part in parts:
        for name in SUMS:
            setattr(found, name, getattr(found, name) + getattr(part, name))
        for name in ("runs", "waits", "attempts"):
            setattr(found, name, _sum(getattr(found, name), getattr(part, name)))
    found.save(using=engine.alias)


def _sum(one: list[int], other: list[int]) -> list[int]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [number + (shorter[index] if index < len(shorter) else 0) for index, number in enumerate(longer)]
