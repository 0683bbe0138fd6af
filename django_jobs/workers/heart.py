"""What a supervisor does in the database, on one thread: heartbeats, the rescue of dead children's jobs, and reaping."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, transaction
from django.db.models.functions import Now
from django.db.utils import ProgrammingError

from django_jobs import log
from django_jobs.engines.base import Engine, Run
from django_jobs.models import Worker as WorkerRow
from django_jobs.queue import rescue
from django_jobs.workers.fitness import Fitness
from django_jobs.workers.outage import Outage
from django_jobs.workers.seats import Seat, SeatMap, State
from django_jobs.workers.worker import Plan

# A claim that its process has not started for so long, because something holds the interpreter, goes back.
UNSTARTED_SECONDS = 10.0
CHUNK = 1000
SILENT_LEASES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    index: int
    incarnation: str
    pid: int


@dataclass(slots=True, kw_only=True)
class Fallen:
    """A child that is gone, and what it had in its seats. `how` is None when we ended it ourselves, for `why`."""

    child: Child
    seats: list[Seat]
    how: str | None
    why: str = ""
    handled: bool = False
    # Claims may still commit after their sender died: looked for until then, on the monotonic clock.
    watch_until: float = 0.0
    ended_at: float = field(default_factory=time.monotonic)


class Heart:
    def __init__(self, engine: Engine, plan: Plan, seats: SeatMap, living: Callable[[], list[Child]]) -> None:
        self._engine = engine
        self._plan = plan
        self._seats = seats
        self._living = living
        self._outage = Outage("supervisor")
        self._fitness = Fitness(plan.settings.lease, plan.settings.heartbeat)
        self._fallen: list[Fallen] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._begun = False
        self._next_beat = 0.0
        self._next_reap = time.monotonic() + plan.settings.heartbeat
        self._host = socket.gethostname()
        self._question = threading.Event()
        self._drained: bool | None = None
        self.ready = threading.Event()
        self.refused: str | None = None
        self._thread = threading.Thread(target=self._loop, name="django_jobs-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def rescue(self, fallen: Fallen) -> None:
        with self._lock:
            self._fallen.append(fallen)
        self._wake.set()

    def end(self, timeout: float) -> bool:
        """Finish the rescues at hand; return whether the database was reached for all of them in `timeout` seconds."""
        self._ending = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def drained(self) -> bool:
        """Tell, by a look asked for now and answered later, whether no job is due, parked for us or lost."""
        answer, self._drained = self._drained, None
        self._question.set()
        self._wake.set()
        return bool(answer)

    @property
    def cut_off(self) -> bool:
        return self._outage.lasts

    def _loop(self) -> None:
        while True:
            try:
                pause = self._tick()
                self._outage.over()
            except ProgrammingError as error:
                if not self._begun:
                    self._refuse(error)
                    return
                pause = self._after_error(error)
            except (DatabaseError, InterfaceError) as error:
                pause = self._after_error(error)
            except Exception:
                log.loop_failed("The supervisor's heart")
                pause = 1.0
            if self._ending and not self._unhandled():
                self._engine.connection.close()
                return
            self._wake.wait(pause)
            self._wake.clear()

    def _tick(self) -> float:
        self._engine.prepare(self._plan.settings.lease / 3)
        if not self._begun:
            self._begin()
        self._rescue()
        now = time.monotonic()
        if now >= self._next_beat:
            self._beat()
            self._next_beat = time.monotonic() + self._plan.settings.heartbeat * random.uniform(0.9, 1.0)
        if now >= self._next_reap:
            self._reap()
            self._next_reap = time.monotonic() + self._plan.settings.heartbeat * random.uniform(0.7, 1.0)
        if self._question.is_set():
            self._question.clear()
            self._drained = self._look()
        return max(min(self._next_beat, self._next_reap) - time.monotonic(), 0.0)

    def _begin(self) -> None:
        WorkerRow.objects.using(self._engine.alias).exists()
        if not self._engine.reaps_by_lease:
            self._take_back_orphans()
        settings = self._plan.settings
        log.started(
            self._engine.describe(),
            self._engine.alias,
            "all" if self._plan.queues is None else ", ".join(self._plan.queues),
            settings.processes,
            settings.threads,
            len(self._plan.types),
            settings.lease,
        )
        self._begun = True
        self.ready.set()

    def _take_back_orphans(self) -> None:
        """On SQLite: whatever runs when we start was run by a tree that is gone, since we hold the file's lock."""
        while rescue.reap(self._engine, self._plan.settings.max_uncounted, "its workers were gone at the next start"):
            pass
        WorkerRow.objects.using(self._engine.alias).all().delete()

    def _refuse(self, error: Exception) -> None:
        first = str(error).strip().split("\n")[0]
        self.refused = f"The tables of django_jobs are not as this version needs them ({first}); run `manage.py migrate`."
        self.ready.set()

    def _after_error(self, error: Exception) -> float:
        self._engine.connection.close()
        self._fitness.broken()
        self._next_beat = 0.0
        if self._engine.probe(timeout=self._plan.settings.lease / 3):
            log.loop_failed("The supervisor's heart")
            return 1.0
        return self._outage.failed(error)

    def _beat(self) -> None:
        for child in self._living():
            self._extend(child)
        alias, ids = self._engine.alias, [child.incarnation for child in self._living()]
        rows = WorkerRow.objects.using(alias)
        # Read on a statement of its own: with no child living there is still a clock to compare.
        rows.filter(pk__in=ids).update(heartbeat_at=Now())
        clock = rows.values_list(Now()).first() if ids else None
        if clock is not None:
            self._fitness.observe(clock[0].timestamp(), time.monotonic())
        self._seats.beat()

    def _extend(self, child: Child) -> None:
        now = time.monotonic()
        alive: dict[int, tuple[Seat, Run]] = {}
        unstarted: list[Run] = []
        for seat in self._seats.regions[child.index].seats():
            if seat.torn:
                continue
            run = _run(child, seat)
            if seat.state is State.CLAIMED and now - seat.claimed_at > UNSTARTED_SECONDS:
                unstarted.append(run)
            else:
                alive[run.id] = (seat, run)
        rescue.give_back(self._engine, unstarted, self._plan.settings.max_uncounted)
        pairs = list(alive.values())
        for start in range(0, len(pairs), CHUNK):
            part = pairs[start : start + CHUNK]
            kept = self._engine.extend([run for _, run in part], self._plan.settings.lease)
            self._stop_lost(child, [(seat, run) for seat, run in part if run.id not in kept])

    def _stop_lost(self, child: Child, lost: list[tuple[Seat, Run]]) -> None:
        region = self._seats.regions[child.index]
        still = {seat.index: seat for seat in region.seats()} if lost else {}
        for seat, run in lost:
            now = still.get(seat.index)
            if now is not None and now.token == seat.token and now.state is State.RUNNING:
                if not region.run_stopped(seat.index, run.token):
                    log.lease_taken(run)
                region.stop_run(seat.index, run.token)

    def _unhandled(self) -> bool:
        with self._lock:
            return any(not fallen.handled for fallen in self._fallen)

    def _rescue(self) -> None:
        with self._lock:
            pending = list(self._fallen)
        now = time.monotonic()
        for fallen in pending:
            if not fallen.handled:
                self._take_back(fallen)
                fallen.handled = True
                fallen.watch_until = now + 2 * self._plan.settings.lease
            else:
                self._take_back_late_claims(fallen)
            if now > fallen.watch_until:
                with self._lock:
                    self._fallen.remove(fallen)

    def _take_back(self, fallen: Fallen) -> None:
        child, limit = fallen.child, self._plan.settings.max_uncounted
        runs = {seat.index: _run(child, seat) for seat in fallen.seats if not seat.torn}
        held = self._engine.held_by(child.incarnation)
        known = set(runs.values())
        nameless = [run for run in held if run not in known]
        running = [
            (runs[seat.index], max(fallen.ended_at - seat.claimed_at, 0.0))
            for seat in fallen.seats
            if seat.state is State.RUNNING and not seat.torn
        ]
        if any(seat.torn for seat in fallen.seats):
            # A seat that was being written may have been a running one.
            running += [(run, 0.0) for run in nameless]
            nameless = []
        running_ids = {run.id for run, _ in running}
        others = [run for run in runs.values() if run.id not in running_ids]
        worker = f"{self._host}:{child.pid}"
        with transaction.atomic(using=self._engine.alias):
            if fallen.how is None:
                rescue.cut(self._engine, running, fallen.why, worker, limit)
            else:
                rescue.lose(self._engine, running, fallen.how, worker, limit)
            rescue.give_back(self._engine, [*others, *nameless], limit)
            WorkerRow.objects.using(self._engine.alias).filter(pk=child.incarnation).delete()

    def _take_back_late_claims(self, fallen: Fallen) -> None:
        held = self._engine.held_by(fallen.child.incarnation)
        rescue.give_back(self._engine, held, self._plan.settings.max_uncounted)

    def _reap(self) -> None:
        if not self._engine.reaps_by_lease or not self._fitness.fit(time.monotonic()):
            return
        while rescue.reap(self._engine, self._plan.settings.max_uncounted) == rescue.BATCH:
            pass
        silent = timedelta(seconds=SILENT_LEASES * self._plan.settings.lease)
        WorkerRow.objects.using(self._engine.alias).filter(heartbeat_at__lt=Now() - silent).delete()

    def _look(self) -> bool:
        found = self._engine.look(self._plan.queues, self._plan.types)
        return found.due_in != 0 and not found.parked and not self._engine.expired_exist()


def _run(child: Child, seat: Seat) -> Run:
    return Run(seat.job_id, seat.token, f"{child.incarnation}:{seat.claim}")
