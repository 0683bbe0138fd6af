"""What dead worker processes left in the database, and taking it back."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

from django_jobs.engines.base import DIED, WORKER_FAILED, Engine, Run
from django_jobs.models import Worker as WorkerRow
from django_jobs.queue import rescue
from django_jobs.workers.seats import Seat, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    index: int
    incarnation: str
    pid: int

    def run(self, seat: Seat) -> Run:
        return Run(seat.job_id, seat.token, f"{self.incarnation}:{seat.claim}")


@dataclass(slots=True, kw_only=True)
class Fallen:
    """A child that is gone, and what it had in its seats.

    `how` it died, if that was seen, or `why` it ended otherwise: `ours` when we meant it to, which charges nothing.
    """

    child: Child
    seats: list[Seat]
    how: str | None
    why: str = ""
    ours: bool = False
    handled: bool = False
    # Claims may still commit after their sender died: looked for until then, on the monotonic clock.
    watch_until: float = 0.0
    ended_at: float = field(default_factory=time.monotonic)


class Rescuer:
    """Takes back the jobs of fallen children: once at once, and for two leases what was claimed late."""

    def __init__(self, engine: Engine, lease: float, max_uncounted: int) -> None:
        self._engine = engine
        self._lease = lease
        self._limit = max_uncounted
        self._fallen: list[Fallen] = []
        self._lock = threading.Lock()
        self._host = socket.gethostname()

    def add(self, fallen: Fallen) -> None:
        with self._lock:
            self._fallen.append(fallen)

    @property
    def waiting(self) -> bool:
        """Whether any child's jobs are not yet back."""
        with self._lock:
            return any(not fallen.handled for fallen in self._fallen)

    @property
    def busy(self) -> bool:
        """Whether there is any child to be looked after."""
        return bool(self._fallen)

    def rescue(self) -> None:
        with self._lock:
            pending = list(self._fallen)
        for fallen in pending:
            if not fallen.handled:
                fallen.handled = self._take_back(fallen)
                fallen.watch_until = time.monotonic() + 2 * self._lease
            elif time.monotonic() <= fallen.watch_until:
                rescue.give_back(self._engine, self._engine.held_by(fallen.child.incarnation), self._limit)
            else:
                with self._lock:
                    self._fallen.remove(fallen)

    def _take_back(self, fallen: Fallen) -> bool:
        runs = {seat.number: fallen.child.run(seat) for seat in fallen.seats if not seat.torn}
        seated = set(runs.values())
        unseated = [run for run in self._engine.held_by(fallen.child.incarnation) if run not in seated]
        running = [
            (runs[seat.number], max(fallen.ended_at - seat.claimed_at, 0.0))
            for seat in fallen.seats
            if seat.state is State.RUNNING and not seat.torn
        ]
        if any(seat.torn for seat in fallen.seats):
            # A seat that cannot be read may have been a running one.
            running += [(run, 0.0) for run in unseated]
            unseated = []
        started = {run for run, _ in running}
        unstarted = [run for run in runs.values() if run not in started]
        worker = f"{self._host}:{fallen.child.pid}"
        if fallen.ours:
            ran_back = rescue.cut(self._engine, running, fallen.why, worker, self._limit)
        else:
            # A process that failed by itself, or with its template, is nobody's proven doing; but it must be bounded.
            said = f"The worker process died: {fallen.how}." if fallen.how else f"The run was lost: {fallen.why}."
            ran_back = rescue.lose(
                self._engine,
                running,
                cause=DIED if fallen.how else WORKER_FAILED,
                error=said,
                worker=worker,
                witnessed=fallen.how is not None,
                max_uncounted=self._limit,
            )
        rest_back = rescue.give_back(self._engine, [*unstarted, *unseated], self._limit)
        WorkerRow.objects.using(self._engine.alias).filter(pk=fallen.child.incarnation).delete()
        return ran_back and rest_back
