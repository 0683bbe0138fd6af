"""What people ask of worker processes: their supervisor hears it with the heartbeats, and carries it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.db.models.functions import Now

from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.models import Worker as WorkerRow
from django_jobs.models.clock import NOW
from django_jobs.workers import orders_log, stacks
from django_jobs.workers.fallen import Child
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import SeatMap

# Stacks are written within milliseconds, unless the process is stopped: then it is asked for them with each heartbeat.
ANSWER_SECONDS = 0.2
QUICK_LOOKS = 10


class Heard(NamedTuple):
    incarnation: str
    asked: str
    stacks_asked: bool


def beat(engine: Engine, incarnations: Sequence[str], listens: bool) -> list[Heard]:
    """Say of worker processes that they live; return what is asked of each that has a row. One statement does both."""
    # Not by the ORM: a supervisor that uses it no more after the fork has some 1 MiB more that it shares with its children.
    # The time, and not whether there is one: SQLite 3.40 says of each in RETURNING that it IS NOT NULL.
    beating = (
        f"UPDATE django_jobs_worker SET heartbeat_at = {NOW[engine.name]}, listens = %s "
        f"WHERE id IN ({', '.join(['%s'] * len(incarnations))}) RETURNING id, asked, stacks_asked_at"
    )
    heard = rows(engine, beating, [listens, *incarnations])
    return [Heard(incarnation, asked, at is not None) for incarnation, asked, at in heard]


class _Dump:
    """Stacks that a process was asked for and has not written, or not all of them."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.size = 0
        self.looks = 0


class Orders:
    def __init__(
        self, engine: Engine, plan: Plan, seats: SeatMap, ring: Callable[[int], None] = lambda index: None
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._seats = seats
        self._ring = ring
        self._dumps: dict[str, _Dump] = {}
        # A person wants the whole `runworkers` to stop.
        self.stop_asked = False

    def hear(self, children: Sequence[Child], heard: Sequence[Heard]) -> None:
        """Carry out what is asked of children that live."""
        by_incarnation = {child.incarnation: child for child in children}
        self._dumps = {incarnation: dump for incarnation, dump in self._dumps.items() if incarnation in by_incarnation}
        for incarnation, asked, stacks_asked in heard:
            child = by_incarnation[incarnation]
            self._quieten(child, asked == WorkerRow.Asked.QUIET)
            self.stop_asked |= asked == WorkerRow.Asked.STOP
            if stacks_asked and incarnation not in self._dumps:
                self._dumps[incarnation] = _Dump(child)
                stacks.ask(child.pid)

    def _quieten(self, child: Child, quiet: bool) -> None:
        region = self._seats.regions[child.index]
        if region.quiet_asked != quiet:
            region.set_quiet(quiet)
            self._ring(child.index)
            orders_log.quiet(child.pid, quiet)

    @property
    def waiting(self) -> bool:
        return bool(self._dumps)

    def answer(self) -> float:
        """Store the stacks that were written; return the seconds until the next look."""
        quick = False
        for incarnation, dump in list(self._dumps.items()):
            size = stacks.size(self._plan.supervisor, dump.child.index)
            written, dump.size = size and size == dump.size, size
            dump.looks += 1
            if written:
                self._store(dump.child)
                del self._dumps[incarnation]
            else:
                quick |= dump.looks < QUICK_LOOKS or size > 0
        return ANSWER_SECONDS if quick else math.inf

    def _store(self, child: Child) -> None:
        text = stacks.take(self._plan.supervisor, child.index)
        rows = WorkerRow.objects.using(self._engine.alias).filter(pk=child.incarnation)
        rows.update(stacks=text, stacks_at=Now(), stacks_asked_at=None)
