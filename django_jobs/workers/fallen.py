"""What dead worker processes left in the database, and taking it back."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from enum import Enum

from django_jobs.backoff import Backoff
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import DIED, OUTCOME_LOST, STOPPED, WORKER_FAILED
from django_jobs.engines.values import Run
from django_jobs.models import Worker as WorkerRow
from django_jobs.queue import rescue
from django_jobs.workers.seats import Seat, State
from django_jobs.workers.verdict import LOSS_PAUSE

RETURNED = "the run had ended, and its process was gone before that was stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    index: int
    incarnation: str
    pid: int

    def run(self, seat: Seat) -> Run:
        return Run(seat.job_id, seat.token, f"{self.incarnation}:{seat.claim}")


class Fate(Enum):
    """What becomes of a job that a dead process had in a seat."""

    UNSTARTED = "goes back as if it had not been claimed"
    RETURNED = "goes back uncharged, though it had ended"
    CUT = "goes back uncharged"
    LOST = "is charged a loss"
    LATE = "is charged an attempt"


@dataclass(slots=True, kw_only=True)
class Fallen:
    """A child that is gone, and what it had in its seats.

    `how` it died, if that was seen, or `why` it ended otherwise: `ours` when we meant it to, which charges nothing but
    an attempt to what was `late`, the numbers of seats whose runs did not end at their deadline. `held`: one of its runs
    kept the interpreter from all others, and those without a deadline may have been it.
    """

    child: Child
    seats: list[Seat]
    how: str | None
    why: str = ""
    ours: bool = False
    in_order: bool = False
    # It ended itself, since something of ours broke in it: what ran in it waits before it runs again.
    failed: bool = False
    late: frozenset[int] = frozenset()
    held: bool = False
    handled: bool = False
    # Claims may still commit after their sender died: looked for until then, on the monotonic clock.
    watch_until: float = 0.0
    ended_at: float = field(default_factory=time.monotonic)

    def fate(self, seat: Seat) -> Fate:
        if seat.state is not State.RUNNING:
            return Fate.RETURNED if seat.state is State.RETURNED else Fate.UNSTARTED
        if seat.number in self.late:
            return Fate.LATE
        return Fate.LOST if self.held and not seat.deadline else self.fate_of_running

    @property
    def fate_of_running(self) -> Fate:
        return Fate.CUT if self.ours else Fate.LOST


class Rescuer:
    """Takes back the jobs of fallen children: once at once, and for two leases what was claimed late."""

    def __init__(self, engine: Engine, lease: float, max_uncounted: int, backoff: Backoff | None = None) -> None:
        self._engine = engine
        self._backoff = backoff or Backoff()
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
        errors = []
        for fallen in pending:
            try:
                self._look_after(fallen)
            except Exception as error:  # one child's is not to keep those of the others
                errors.append(error)
        if errors:
            raise errors[0]

    def _look_after(self, fallen: Fallen) -> None:
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
        unseated = [(run, 0.0) for run in self._engine.held_by(fallen.child.incarnation) if run not in seated]
        by_fate: dict[Fate, list[tuple[Run, float]]] = {fate: [] for fate in Fate}
        for seat in fallen.seats:
            if not seat.torn:
                seconds = max(fallen.ended_at - seat.claimed_at, 0.0)
                by_fate[fallen.fate(seat)].append((runs[seat.number], seconds))
        # A seat that cannot be read may have been a running one.
        torn = any(seat.torn for seat in fallen.seats)
        by_fate[fallen.fate_of_running if torn else Fate.UNSTARTED] += unseated
        back = self._settle(fallen, by_fate)
        WorkerRow.objects.using(self._engine.alias).filter(pk=fallen.child.incarnation).delete()
        return back

    def _settle(self, fallen: Fallen, by_fate: dict[Fate, list[tuple[Run, float]]]) -> bool:
        worker = f"{self._host}:{fallen.child.pid}"
        # A process that failed by itself, or with its template, is nobody's proven doing; but it must be bounded.
        said = f"The worker process died: {fallen.how}." if fallen.how else f"The run was lost: {fallen.why}."
        back = [
            rescue.end_late(self._engine, by_fate[Fate.LATE], worker, self._backoff, self._limit),
            rescue.cut(self._engine, by_fate[Fate.CUT], STOPPED, fallen.why, worker, self._limit),
            rescue.cut(self._engine, by_fate[Fate.RETURNED], OUTCOME_LOST, RETURNED, worker, self._limit),
            rescue.lose(
                self._engine,
                by_fate[Fate.LOST],
                cause=DIED if fallen.how else WORKER_FAILED,
                error=said,
                worker=worker,
                witnessed=fallen.how is not None,
                max_uncounted=self._limit,
                # A handler that breaks its process would be the first to run again.
                delay=LOSS_PAUSE if fallen.failed else None,
            ),
            rescue.give_back(self._engine, [run for run, _ in by_fate[Fate.UNSTARTED]], self._limit),
        ]
        return all(back)
