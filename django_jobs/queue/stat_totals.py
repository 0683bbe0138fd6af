"""Sums of everything that was ever counted: kept beside the statistics, which are deleted when they are old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from django_jobs.engines.base import Engine
from django_jobs.models import Stat, StatTotal
from django_jobs.models.stat import MINUTE, SUMS

CLASSED = ("runs", "waits")
_READ = ("queue", "type", *SUMS, *CLASSED)


def add(engine: Engine, minutes: Sequence[Stat]) -> None:
    """Add minutes that are about to be folded, for the first and only time. Call it in the transaction that does that."""
    sums = _by_key(minutes)
    rows = StatTotal.objects.using(engine.alias)
    rows.bulk_create([StatTotal(queue=queue, type=name) for queue, name in sorted(sums)], ignore_conflicts=True)
    # In one order, after all other locks: two who fold wait for each other here, and nowhere else.
    for queue, name in sorted(sums):
        found = rows.select_for_update().get(queue=queue, type=name)
        _add(found, sums[queue, name])
        found.save(using=engine.alias)


def totals(engine: Engine) -> list[StatTotal]:
    """Return the sums of everything that was ever counted, by queue and type; they never get smaller.

    It is one statement: a minute that is folded meanwhile is counted once.
    """
    folded = StatTotal.objects.using(engine.alias).values_list(*_READ)
    minutes = Stat.objects.using(engine.alias).filter(seconds=MINUTE).values_list(*_READ)
    read = minutes.union(folded, all=True)
    found = _by_key(StatTotal(**dict(zip(_READ, row, strict=True))) for row in read)
    return [found[key] for key in sorted(found)]


def _by_key(rows: Iterable[Stat | StatTotal]) -> dict[tuple[str, str], StatTotal]:
    found: dict[tuple[str, str], StatTotal] = {}
    for row in rows:
        key = (row.queue, row.type)
        if key not in found:
            found[key] = StatTotal(queue=row.queue, type=row.type)
        _add(found[key], row)
    return found


def _add(total: StatTotal, part: Stat | StatTotal) -> None:
    for name in SUMS:
        setattr(total, name, getattr(total, name) + getattr(part, name))
    for name in CLASSED:
        pairs = zip_longest(getattr(total, name), getattr(part, name), fillvalue=0)
        setattr(total, name, [one + other for one, other in pairs])
