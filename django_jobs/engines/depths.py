"""How much waits, runs and is dead: counted by the indexes that hold it, and no further than a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Min, Q

from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.engines.sql import statement
from django_jobs.models import Job, Pause
from django_jobs.models.clock import Clock, database_now, from_row

# Of each kind no more rows than the limit are read; every other word of these is the same in both databases.
_OTHERS = """
SELECT 'parked', queue, count(*)
  FROM (SELECT queue FROM django_jobs_job WHERE parked IS NOT NULL AND parked IN ('type', 'pause') LIMIT %(most)s) found
 GROUP BY queue
UNION ALL
SELECT 'suspects', queue, count(*)
  FROM (SELECT queue FROM django_jobs_job WHERE parked = 'suspect' LIMIT %(most)s) found
 GROUP BY queue
UNION ALL
SELECT 'running', queue, count(*)
  FROM (SELECT queue FROM django_jobs_job WHERE status = 'running' LIMIT %(most)s) found
 GROUP BY queue
UNION ALL
SELECT 'dead', '', count(*) FROM (SELECT 1 FROM django_jobs_job WHERE status = 'dead' LIMIT %(most)s) found
UNION ALL
SELECT 'failed', '', count(*) FROM (SELECT 1 FROM django_jobs_job WHERE status = 'failed' LIMIT %(most)s) found
"""
# As more rows of the statement that counts what waits.
_BESIDE = f"""
UNION ALL
SELECT queue, NULL, number, NULL, NULL, kind FROM ({_OTHERS}) others(kind, queue, number)
"""


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """What waits in a lane. `oldest`: seconds for which the job due longest waits, also one that a pause had parked which is
    over; None if none is due."""

    queue: str
    priority: int
    due: int
    later: int
    oldest: float | None


@dataclass(slots=True)
class QueueDepth:
    """What is in a queue. A number that reached the limit stands for that many or more; `is_capped` says whether one did."""

    queue: str
    due: int = 0
    later: int = 0
    parked: int = 0
    suspects: int = 0
    running: int = 0
    oldest: float | None = None
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Depths:
    """`most`: the limit; of dead letters, parked, suspects and running jobs for all queues, of what waits for each lane."""

    most: int
    lanes: list[LaneDepth]
    queues: list[QueueDepth]
    dead: int
    failed: int

    @property
    def dead_letters(self) -> int:
        return self.dead + self.failed

    @property
    def oldest(self) -> float | None:
        """Seconds for which the job due longest waits, in whatever queue; None if none is due."""
        return max((queue.oldest for queue in self.queues if queue.oldest is not None), default=None)


def depths(engine: Engine, most: int) -> Depths:
    """Count in one statement; on SQLite in several, of which the first reads all that waits."""
    waiting, others = _asked(engine, most)
    lanes = _lanes(waiting)
    queues: dict[str, QueueDepth] = {}
    for lane in lanes:
        queue = queues.setdefault(lane.queue, QueueDepth(lane.queue))
        queue.due += lane.due
        queue.later += lane.later
        queue.is_capped |= max(lane.due, lane.later) >= most
        queue.oldest = max((age for age in (queue.oldest, lane.oldest) if age is not None), default=None)
    totals = {kind: sum(number for of, _, number in others if of == kind) for kind in ("parked", "suspects", "running")}
    for kind, name, number in others:
        if kind in totals:
            queue = queues.setdefault(name, QueueDepth(name))
            setattr(queue, kind, number)
            queue.is_capped |= totals[kind] >= most
    ended = {kind: number for kind, _, number in others if kind not in totals}
    return Depths(most, lanes, [queues[name] for name in sorted(queues)], ended["dead"], ended["failed"])


def _asked(engine: Engine, most: int) -> tuple[Iterable[tuple[Any, ...]], list[tuple[str, str, int]]]:
    """Return what waits, by lanes, and the numbers of all else."""
    if engine.name != "postgresql":
        return _grouped(engine), rows(engine, _OTHERS, {"most": most})
    found = rows(engine, f"{statement('depths')}{_BESIDE}", {"most": most})
    others = [(kind, queue, number) for queue, _, number, _, _, kind in found if kind != "waits"]
    return [row[:5] for row in found if row[5] == "waits"], others


def _lanes(found: Iterable[tuple[Any, ...]]) -> list[LaneDepth]:
    lanes: dict[tuple[str, int], LaneDepth] = {}
    for queue, priority, due, later, age in found:
        lane = lanes.setdefault((queue, priority), LaneDepth(queue, priority, 0, 0, None))
        ages = [each for each in (lane.oldest, age) if each is not None]
        lanes[queue, priority] = LaneDepth(queue, priority, lane.due + due, lane.later + later, max(ages, default=None))
    return sorted(lanes.values(), key=lambda lane: (lane.queue, -lane.priority))


def _grouped(engine: Engine) -> Iterable[tuple[Any, ...]]:
    now = database_now(engine.alias)
    paused = Pause.objects.using(engine.alias).in_force().filter(kind=Pause.Kind.TYPE).values("name")
    due, unparked = Q(run_at__lte=Clock()), Q(parked__isnull=True)
    # What a pause had that is over is still parked until it is claimed.
    released = Q(~Q(type__in=paused), due, parked=Job.Parked.PAUSE)
    waiting = Job.objects.using(engine.alias).ready().filter(unparked | released).values("queue", "priority")
    counted = waiting.annotate(
        due=Count("id", filter=due & unparked), total=Count("id", filter=unparked), oldest=Min("run_at", filter=due)
    )
    for row in counted.annotate(later=F("total") - F("due")).order_by():
        oldest = row["oldest"]
        age = None if oldest is None else max((now - from_row(oldest, engine.alias)).total_seconds(), 0.0)
        yield row["queue"], row["priority"], row["due"], row["later"], age
