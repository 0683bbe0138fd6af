"""Whether something is wrong that somebody should be woken for: a few bounded questions, and thresholds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_jobs import report
from django_jobs.conf import Conf
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.engines.bounded import bounded
from django_jobs.engines.depths import Depths, QueueDepth, depths
from django_jobs.models import Job, Pause, Worker
from django_jobs.models.clock import database_now
from django_jobs.models.worker import unserved
from django_jobs.monitoring.levels import Measured

# Where neither an option nor a setting says what is too much.
AGE, DEAD = 900.0, 1000
LEAST_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on it is bad; each is passed by more, that of workers by fewer. Ages and the clock are seconds."""

    age_warning: float | None
    age_critical: float | None
    dead_warning: float | None
    dead_critical: float | None
    workers_warning: float | None = None
    workers_critical: float | None = 1
    silent_warning: float | None = 0
    silent_critical: float | None = None
    overdue_warning: float | None = 0
    overdue_critical: float | None = None
    broken_warning: float | None = 0
    broken_critical: float | None = None
    unknown_warning: float | None = 60
    unknown_critical: float | None = None
    clock_warning: float | None = 10
    clock_critical: float | None = None

    @classmethod
    def of(cls, settings: Conf) -> Thresholds:
        """Return those in force where no option says another: what raises an alert is critical, half of it a warning."""
        age = AGE if settings.queue_age_alert is None else settings.queue_age_alert
        dead = DEAD if settings.dead_letter_alert is None else settings.dead_letter_alert
        return cls(age_warning=age / 2, age_critical=age, dead_warning=dead // 2, dead_critical=dead)

    def using(self, **changes: float) -> Thresholds:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Checked:
    found: list[Measured]
    well: str


def check(thresholds: Thresholds, queues: Sequence[str] | None = None) -> Checked:
    """Measure what there are thresholds for, of these queues or of all. Dead letters are counted for all of them.

    A queue that is paused is left out where something would have to start: somebody wants it to wait. Raises TooSlow when
    the database takes longer than a few seconds, and what the database raises.
    """
    alias = jobs_alias()
    with bounded(alias):
        return _Check(engine(alias), thresholds, queues).made()


class _Check:
    def __init__(self, engine: Engine, thresholds: Thresholds, queues: Sequence[str] | None) -> None:
        self._engine, self._limits, self._queues = engine, thresholds, queues
        self._paused = Pause.objects.using(engine.alias).names(Pause.Kind.QUEUE)
        rows: Iterable[Any] = (
            Worker.objects.using(engine.alias).marked().defer("types", "stacks").order_by("host", "pid")
        )
        workers = [worker for worker in rows if worker.serves_any(queues)]
        self._live = [worker for worker in workers if worker.live]
        self._silent = [worker for worker in workers if not worker.live]

    def made(self) -> Checked:
        found = depths(self._engine, 1)
        waiting = [queue for queue in found.queues if queue.due and self._is_looked_at(queue.queue)]
        measured = [
            self._workers(),
            self._count("silent", len(self._silent), _silent(self._silent)),
            self._unserved(waiting),
            *self._ages(waiting),
            self._dead(),
            self._unknown(),
            *self._schedules(),
            self._clock(),
        ]
        return Checked(measured, self._well(found))

    def _is_looked_at(self, queue: str) -> bool:
        return queue not in self._paused and (self._queues is None or queue in self._queues)

    def _limits_of(self, name: str) -> tuple[float | None, float | None]:
        return getattr(self._limits, f"{name}_warning"), getattr(self._limits, f"{name}_critical")

    def _count(self, name: str, value: float, text: str, **options: Any) -> Measured:
        return Measured(name, value, *self._limits_of(name), text, **options)

    def _workers(self) -> Measured:
        number = len(self._live)
        text = f"{number} live worker process{'' if number == 1 else 'es'}" if number else "no live worker"
        return self._count("workers", number, text, least=True)

    def _unserved(self, waiting: list[QueueDepth]) -> Measured:
        alone = unserved([queue.queue for queue in waiting], self._live)
        return Measured("unserved", len(alone), None, 0, f"no live worker serves {_names(alone)}, where jobs are due")

    def _ages(self, waiting: list[QueueDepth]) -> Iterator[Measured]:
        limits = self._limits_of("age")
        ages = {queue.queue: queue.oldest or 0.0 for queue in waiting}
        yield Measured("oldest", max(ages.values(), default=0.0), None, None, unit="s")
        for queue, age in sorted(ages.items()):
            text = f"the oldest due job of {queue} waits for {age:.0f} s"
            yield Measured(f"oldest_{queue}", age, *limits, text, unit="s")

    def _dead(self) -> Measured:
        most = max(LEAST_COUNTED, *(int(limit) + 1 for limit in self._limits_of("dead") if limit is not None), 0)
        jobs = Job.objects.using(self._engine.alias).dead_letters()
        number = jobs.order_by()[:most].count()
        text = "1 dead letter" if number == 1 else f"{number}{' or more' if number >= most else ''} dead letters"
        return self._count("dead", number, text)

    def _unknown(self) -> Measured:
        rows = [row for row in report.unknown_types(self._engine.alias) if self._is_looked_at(row["queue"])]
        age = max((row["waiting_seconds"] for row in rows), default=0.0)
        types = sorted({row["type"] for row in rows})
        text = f"no live worker knows {_names(types)}: jobs of it are parked for {age:.0f} s"
        return self._count("unknown", max(age, 0.0), text, unit="s")

    def _schedules(self) -> Iterator[Measured]:
        counts = report.schedule_counts(self._engine.alias)
        for name in ("overdue", "broken"):
            number = counts[name]
            yield self._count(name, number, f"{number} schedule{'' if number == 1 else 's'} {name}")

    def _clock(self) -> Measured:
        apart = abs(skew(self._engine.alias))
        return self._count(
            "clock", apart, f"the clocks of this host and the database are {apart:.1f} s apart", unit="s"
        )

    def _well(self, found: Depths) -> str:
        oldest = "nothing is due" if found.oldest is None else f"the oldest due job waits for {found.oldest:.1f} s"
        paused = f"; paused: {', '.join(sorted(self._paused))}" if self._paused else ""
        return f"{len(self._live)} live worker processes, {oldest}{paused}"


def skew(alias: str) -> float:
    """Return by how many seconds the clock of this host is ahead of the database's; exact to half of what an answer takes."""
    before = time.clock_gettime(time.CLOCK_REALTIME)
    now = database_now(alias).timestamp()
    after = time.clock_gettime(time.CLOCK_REALTIME)
    return before - now if now < before else after - now if now > after else 0.0


def _silent(workers: list[Any]) -> str:
    age = max((worker.clock - worker.heartbeat_at for worker in workers), default=timedelta(0)).total_seconds()
    number, named = len(workers), _names(list(map(str, workers)))
    return f"{number} silent worker process{'' if number == 1 else 'es'} ({named}, for up to {age:.0f} s)"


def _names(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
