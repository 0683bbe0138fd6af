"""What is parked, by type and queue: counted by the indexes that hold it, and no further than a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min

from django_jobs.engines.base import Engine
from django_jobs.engines.sql import statement
from django_jobs.models import Job
from django_jobs.models.clock import database_now, from_row


@dataclass(frozen=True, slots=True)
class Parked:
    """Jobs of a type on a queue that no claim takes. `jobs`: so many, or the limit and more. `waiting`: seconds since the
    oldest of those counted was due; negative while it is not."""

    type: str
    queue: str
    jobs: int
    waiting: float


def parked(engine: Engine, most: int, suspects: bool = False) -> list[Parked]:
    """Return what is parked for its type or by a pause of it, or else the suspects; on SQLite all that is parked is read."""
    if suspects:
        return _grouped(engine, [Job.Parked.SUSPECT], most)
    if engine.name != "postgresql":
        return _grouped(engine, [Job.Parked.TYPE, Job.Parked.PAUSE], None)
    with engine.connection.cursor() as cursor:
        cursor.execute(statement("parked_depths"), {"most": most})
        return sorted((Parked(*row) for row in cursor.fetchall()), key=lambda found: (found.type, found.queue))


def _grouped(engine: Engine, reasons: list[str], most: int | None) -> list[Parked]:
    now = database_now(engine.alias)
    jobs = Job.objects.using(engine.alias)
    found: Any = jobs.filter(parked__in=reasons)
    if most is not None:
        found = jobs.filter(pk__in=list(found.order_by("run_at").values_list("pk", flat=True)[:most]))
    rows = found.values("type", "queue").annotate(jobs=Count("id"), oldest=Min("run_at")).order_by("type", "queue")
    return [
        Parked(row["type"], row["queue"], row["jobs"], (now - from_row(row["oldest"], engine.alias)).total_seconds())
        for row in rows
    ]
