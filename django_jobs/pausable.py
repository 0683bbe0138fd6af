"""Which names of queues and types are known: a pause of another is likely a slip of the fingers, or ahead of a deploy."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from django_jobs import registry
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.depths import depths
from django_jobs.engines.parked import parked
from django_jobs.models import Pause, Schedule, Stat, StatTotal, Worker
from django_jobs.models.stat import MINUTE

MOST_LIKE = 3


@dataclass(frozen=True, slots=True)
class Known:
    """Names of the code that runs here, of workers, of jobs that wait or ran, of schedules and of pauses in force."""

    queues: set[str]
    types: set[str]

    def of(self, kind: str) -> set[str]:
        return self.queues if kind == "queue" else self.types

    def like(self, kind: str, name: str) -> list[str]:
        """Return the names that are nearly the same, the nearest first."""
        return get_close_matches(name, sorted(self.of(kind)), MOST_LIKE, 0.75)


def known() -> Known:
    """Return the names that are known now; each question is bounded as those of the overview are."""
    alias = jobs_alias()
    waiting = parked(engine(alias), 1)
    queues = {
        *registry.queues(),
        *(row.queue for row in depths(engine(alias), 1).queues),
        *(row.queue for row in waiting),
    }
    types = {*registry.names(), *(row.type for row in waiting)}
    for served, can_run in Worker.objects.using(alias).values_list("queues", "types"):
        queues.update(served or ())
        types.update(can_run or ())
    # By the statistics, the sums of those that were folded and the minutes that were not, and by schedules: in one question.
    sources = (
        StatTotal.objects.using(alias),
        Stat.objects.using(alias).filter(seconds=MINUTE),
        Schedule.objects.using(alias),
    )
    first, *others = (rows.order_by().values_list("queue", "type").distinct() for rows in sources)
    for queue, type_ in first.union(*others):
        queues.update({queue} - {""})
        types.add(type_)
    for kind, name in Pause.objects.using(alias).in_force().values_list("kind", "name"):
        (queues if kind == "queue" else types).add(name)
    return Known(queues, types)
