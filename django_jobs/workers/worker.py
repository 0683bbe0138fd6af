"""One worker process: it claims jobs, has its threads run them, and its writer store how they ended."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError

from django_jobs import log
from django_jobs.conf import Conf
from django_jobs.engines.base import ClaimOrder, ClaimResult, Engine, released
from django_jobs.models import Worker as WorkerRow
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.executor import Assigned, Executor
from django_jobs.workers.outage import Outage
from django_jobs.workers.pace import Pace
from django_jobs.workers.seats import SEATS, Phase, Region
from django_jobs.workers.writer import Ended, Writer

LARGEST_CLAIM = 500
# Rows may be in other workers' hands: a look that found something due is followed by another claim soon.
CONTENDED_SECONDS = 0.02
PARKED_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all worker processes of one supervisor have in common."""

    alias: str
    settings: Conf
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    supervisor_pid: int
    burst: bool


class Worker:
    def __init__(self, engine: Engine, plan: Plan, incarnation: str, region: Region, doorbell: Doorbell) -> None:
        self._engine = engine
        self._plan = plan
        self._incarnation = incarnation
        self._region = region
        self._doorbell = doorbell
        self._parent = os.getppid()
        settings = plan.settings
        self._statement_timeout = settings.lease / 3
        self._outage = Outage(f"worker {os.getpid()}")
        self._pace = Pace(settings.threads)
        self._free: deque[int] = deque(range(SEATS))
        self._writer = Writer(
            engine, region, self._outage, self._seats_freed, self._is_busy, settings.max_uncounted, self._statement_timeout
        )
        label = f"{socket.gethostname()}:{os.getpid()}"
        self._executor = Executor(engine, settings, region, self._writer, self._pace, label, doorbell.ring)
        self._claim_number = 0
        self._recent_types: set[str] = set()
        self._idle_until = 0.0
        self._parked_waiting = False
        self._parked_turn = False
        self._parked_checked_at = 0.0
        self._full = False
        self._looked_idle = False
        self._given_at = 0.0
        self._lost_claims: list[int] = []

    def run(self) -> None:
        """Work until told to stop or orphaned; return when every outcome is stored."""
        self._region.tick_writes()
        self._register()
        self._writer.start()
        self._executor.start()
        while not self._must_stop():
            self._region.tick_claims()
            try:
                pause = self._step()
                self._outage.over()
            except (DatabaseError, InterfaceError) as error:
                pause = self._after_error(error)
            self._wait(pause)
        self._stop()

    def _step(self) -> float:
        """Claim if there is room; return the seconds until the next step unless the doorbell rings before."""
        self._engine.prepare(self._statement_timeout)
        self._give_back_lost_claims()
        self._give_back_what_waits()
        wanted = self._wanted()
        self._full = wanted <= 0
        self._tell_phase()
        if self._full:
            return self._plan.settings.poll_interval
        left = self._idle_until - time.monotonic()
        if left > 0:
            return left
        # While idle a look comes first: it is all that an idle worker sends.
        if self._looked_idle:
            pause = self._look()
            return pause or self._claim_or_look(wanted)
        return self._claim_or_look(wanted)

    def _claim_or_look(self, wanted: int) -> float:
        return 0.0 if self._claim(wanted) else self._look()

    def _wanted(self) -> int:
        in_hand = self._executor.in_hand
        if in_hand > self._refill_at():
            return 0
        return min(self._target() - in_hand, len(self._free), LARGEST_CLAIM)

    def _target(self) -> int:
        return self._plan.settings.threads + self._pace.ahead(self._recent_types)

    def _refill_at(self) -> int:
        return max(self._plan.settings.threads - 1, self._target() // 2)

    def _claim(self, wanted: int) -> bool:
        """Make a claim; return whether another may bring more."""
        self._claim_number += 1
        order = ClaimOrder(
            locked_by=f"{self._incarnation}:{self._claim_number}",
            lease=self._plan.settings.lease,
            limit=wanted,
            queues=self._plan.queues,
            types=self._plan.types,
        )
        parked_turn = self._is_turn_of_parked()
        try:
            result = self._engine.claim_parked(order) if parked_turn else self._engine.claim(order)
        except (DatabaseError, InterfaceError):
            # It may have been made although no answer came.
            self._lost_claims.append(self._claim_number)
            raise
        if parked_turn and not result.jobs:
            self._parked_waiting, self._parked_checked_at = False, time.monotonic()
        self._assign(result)
        return bool(result.jobs or result.parked or parked_turn)

    def _is_turn_of_parked(self) -> bool:
        """Jobs that others parked take turns with the rest; when none are known, they are tried once a second."""
        if time.monotonic() - self._parked_checked_at >= PARKED_SECONDS:
            self._parked_waiting = True
        self._parked_turn = self._parked_waiting and not self._parked_turn
        return self._parked_turn

    def _assign(self, result: ClaimResult) -> None:
        if result.parked:
            log.types_parked(result.parked)
        if not result.jobs:
            return
        self._region.set_phase(Phase.BUSY)
        at = time.monotonic()
        assigned = []
        for claimed in result.jobs:
            seat = self._free.popleft()
            self._region.take(seat, claimed.id, claimed.token, self._claim_number)
            assigned.append(Assigned(seat, claimed, at))
        self._recent_types = {claimed.type for claimed in result.jobs}
        self._given_at = at
        for item in assigned:
            self._executor.give(item)

    def _look(self) -> float:
        """Look without locks; return how long nothing will be due, 0 when a claim is worth while."""
        found = self._engine.look(self._plan.queues, self._plan.types)
        self._parked_waiting, self._parked_checked_at = found.parked, time.monotonic()
        if found.parked or found.due_in == 0:
            was_idle, self._looked_idle = self._looked_idle, False
            return 0.0 if was_idle or found.parked else random.uniform(CONTENDED_SECONDS / 2, CONTENDED_SECONDS)
        poll = self._plan.settings.poll_interval
        pause = poll * random.uniform(0.9, 1.0) if found.due_in is None else min(found.due_in, poll)
        self._looked_idle = True
        self._idle_until = time.monotonic() + pause
        self._tell_phase()
        return pause

    def _tell_phase(self) -> None:
        idle = time.monotonic() < self._idle_until and len(self._free) == SEATS
        self._region.set_phase(Phase.IDLE if idle else Phase.BUSY)

    def _wait(self, pause: float) -> None:
        if pause <= 0:
            return
        if self._full:
            self._executor.wake_at = self._refill_at()
            # Jobs may have ended before it was known that this loop waits.
            if self._executor.in_hand <= self._executor.wake_at and self._free:
                self._executor.wake_at = -1
                return
        self._doorbell.wait(min(pause, 1.0))
        self._executor.wake_at = -1

    def _after_error(self, error: Exception) -> float:
        self._engine.connection.close()
        if self._engine.probe(timeout=self._statement_timeout):
            log.loop_failed("Claiming jobs")
            return 1.0
        return self._outage.failed(error)

    def _give_back_lost_claims(self) -> None:
        while self._lost_claims:
            held_by = f"{self._incarnation}:{self._lost_claims[0]}"
            for run in self._engine.held_by(self._incarnation):
                if run.locked_by == held_by:
                    self._engine.settle([released(run)], self._plan.settings.max_uncounted)
            self._lost_claims.pop(0)

    def _give_back_what_waits(self) -> None:
        """Give back what was claimed ahead when all threads have been busy with something else for seconds."""
        if self._executor.waiting and time.monotonic() - self._given_at > 5.0:
            self._give_back_unstarted()

    def _give_back_unstarted(self) -> None:
        for item in self._executor.take_back():
            self._writer.put(Ended(item.seat, item.claimed, released(item.claimed.run), 0.0))

    def _seats_freed(self, seats: Sequence[int]) -> None:
        none_left = not self._free
        self._free.extend(seats)
        if self._plan.burst and len(self._free) == SEATS:
            # What ended last may have enqueued more: the worker is idle only after a look that came later.
            self._idle_until = 0.0
            self._doorbell.ring()
        elif none_left:
            self._doorbell.ring()

    def _is_busy(self) -> bool:
        return self._executor.in_hand > 0

    def _must_stop(self) -> bool:
        return self._region.stop_asked or os.getppid() != self._parent

    def _register(self) -> None:
        while not self._must_stop():
            try:
                self._engine.prepare(self._statement_timeout)
                WorkerRow.objects.using(self._engine.alias).create(
                    id=self._incarnation,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    supervisor_pid=self._plan.supervisor_pid,
                    queues=None if self._plan.queues is None else list(self._plan.queues),
                    types=list(self._plan.types),
                    threads=self._plan.settings.threads,
                )
            except (DatabaseError, InterfaceError) as error:
                self._doorbell.wait(self._after_error(error))
                self._region.tick_claims()
            else:
                log.worker_ready(os.getpid())
                return

    def _stop(self) -> None:
        self._give_back_unstarted()
        while self._executor.in_hand > 0:
            self._region.tick_claims()
            self._executor.wake_at = 0
            self._doorbell.wait(0.5)
        ticker = threading.Thread(target=self._tick_until_ended, name="django_jobs-ticker", daemon=True)
        ticker.start()
        self._writer.finish()
        try:
            WorkerRow.objects.using(self._engine.alias).filter(pk=self._incarnation).delete()
        except (DatabaseError, InterfaceError):
            pass  # the supervisor deletes it, or others do when it has been silent
        self._engine.connection.close()
        self._region.set_phase(Phase.ENDED)

    def _tick_until_ended(self) -> None:
        while self._region.phase != Phase.ENDED:
            self._region.tick_claims()
            threading.Event().wait(0.5)

