"""Keeping alive what runs: the leases of all that is in the seats of living children, and their rows."""

from __future__ import annotations

import time
from collections.abc import Callable

from django_jobs import log
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Run
from django_jobs.queue import rescue
from django_jobs.workers.fallen import Child
from django_jobs.workers.orders import Orders, beat
from django_jobs.workers.plan import Plan
from django_jobs.workers.registration import register
from django_jobs.workers.seats import Phase, Seat, SeatMap, State

# A claim that its process has not started for so long, because something holds the interpreter, goes back.
UNSTARTED_SECONDS = 10.0
CHUNK = 1000
# Of more runs than these in one process most are over before their leases are half used.
FEW = 100


class Pulse:
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        seats: SeatMap,
        living: Callable[[], list[Child]],
        listens: Callable[[], bool] = lambda: False,
        orders: Orders | None = None,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._seats = seats
        self._living = living
        self._listens = listens
        self.orders = orders or Orders(engine, plan, seats)

    def beat(self) -> None:
        sent_at = time.monotonic()
        children = self._living()
        unstarted: list[Run] = []
        for child in children:
            seats = self._seats_of(child)
            taken_back = self._take_back_unstarted(child, seats)
            self._extend(child, [seat for seat in self._old(seats) if child.run(seat) not in taken_back])
            unstarted += taken_back
        self._seats.beat(sent_at)
        self._keep_rows(children)
        rescue.give_back(self._engine, unstarted, self._plan.settings.max_uncounted)

    def strays(self) -> set[Run]:
        """Return the running jobs that a living child holds by the table, and not by its seats."""
        found: set[Run] = set()
        for child in self._living():
            held = self._engine.held_by(child.incarnation)
            seated = {child.run(seat) for seat in self._seats_of(child)}
            if child in self._living():
                found.update(run for run in held if run not in seated)
        return found

    def _seats_of(self, child: Child) -> list[Seat]:
        seats = [seat for seat in self._seats.regions[child.index].seats() if not seat.torn]
        # Asked afterwards: the region may have been cleared meanwhile, and given to another child.
        return seats if child in self._living() else []

    def _old(self, seats: list[Seat]) -> list[Seat]:
        """Return those whose leases are to be extended: of many, only what was not claimed a moment ago."""
        if len(seats) <= FEW:
            return seats
        # Half an interval, so that what is left out now is extended a whole interval later with much of its lease left.
        young = time.monotonic() - self._plan.settings.heartbeat / 2
        return [seat for seat in seats if seat.claimed_at <= young]

    def _take_back_unstarted(self, child: Child, seats: list[Seat]) -> set[Run]:
        region = self._seats.regions[child.index]
        found = set()
        for seat in seats:
            if seat.state is not State.CLAIMED or time.monotonic() - seat.claimed_at <= UNSTARTED_SECONDS:
                continue
            # The executor marks the seat and looks at the request then: one of us sees the other.
            region.stop_run(seat.number, seat.job_id, seat.token)
            if region.state(seat.number) is State.CLAIMED:
                found.add(child.run(seat))
            else:
                region.stop_run(seat.number, 0, 0)
        return found

    def _extend(self, child: Child, seats: list[Seat]) -> None:
        for start in range(0, len(seats), CHUNK):
            part = {child.run(seat): seat for seat in seats[start : start + CHUNK]}
            kept = self._engine.extend(list(part), self._plan.settings.lease)
            self._stop_lost(child, {run: seat for run, seat in part.items() if run.id not in kept})
            self._stop_cancelled(child, {run: seat for run, seat in part.items() if kept.get(run.id)})

    def _stop_lost(self, child: Child, lost: dict[Run, Seat]) -> None:
        """Tell runs whose job is no longer theirs to stop; those that ended meanwhile have another seat or none."""
        region = self._seats.regions[child.index]
        still = {child.run(seat) for seat in self._seats_of(child) if seat.state is State.RUNNING} if lost else set()
        # Such an end was committed by the run itself, whose thread has not come to say so.
        asked = [run for run in lost if run in still]
        ended = self._engine.ended_by(asked, waiting=False) if asked else {}
        for run, seat in lost.items():
            if run in still and run.id not in ended and not region.run_stopped(seat.number, run.id, run.token):
                log.lease_taken(run)
                region.stop_run(seat.number, run.id, run.token)

    def _stop_cancelled(self, child: Child, cancelled: dict[Run, Seat]) -> None:
        """Tell runs whose job a person cancelled to stop; the writing of their end makes it cancelled."""
        region = self._seats.regions[child.index]
        for run, seat in cancelled.items():
            if not region.run_stopped(seat.number, run.id, run.token):
                log.run_cancelled(run)
                region.stop_run(seat.number, run.id, run.token)

    def _keep_rows(self, children: list[Child]) -> None:
        ids = [child.incarnation for child in children]
        if not ids:
            return
        heard = beat(self._engine, ids, self._listens())
        self.orders.hear(children, heard)
        known = {row.incarnation for row in heard}
        for child in children if len(known) < len(ids) else []:
            # Those that start make their row themselves; that of a frozen one was deleted as silent.
            working = self._seats.regions[child.index].phase in (Phase.BUSY, Phase.IDLE)
            if child.incarnation not in known and working and child in self._living():
                register(self._engine, self._plan, child.incarnation, child.pid)
