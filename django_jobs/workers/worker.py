"""One worker process: it claims jobs, has its threads run them, and its writer store how they ended."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager

from django.db import OperationalError

from django_jobs import log
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.values import released
from django_jobs.workers.claims import Claimer
from django_jobs.workers.connections import answer_timeout, connect_timeout, statement_timeout, still_works
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.ended import Ended
from django_jobs.workers.executor import Assigned, Executor
from django_jobs.workers.failure import can_open_files
from django_jobs.workers.limits import Limits
from django_jobs.workers.link import could_not_write
from django_jobs.workers.outage import Breaks, Outage
from django_jobs.workers.pace import Pace
from django_jobs.workers.plan import Plan
from django_jobs.workers.registration import leave, register
from django_jobs.workers.seats import SEATS, Phase, SeatMap
from django_jobs.workers.waking import Waker
from django_jobs.workers.watchdog import guarded, watchdog
from django_jobs.workers.writer import Writer

LONGEST_WAIT = 1.0
# A little longer than the pause of an idle claimer, which else would take two steps for each look.
LONGEST_REST = 1.2
BIDES_UNTIL_SAID = 6
# What was claimed ahead and has not started for so long, because all threads are busy with something else, goes back.
WAITED_SECONDS = 5.0


class Worker:
    """The loop of a worker process whose parent is `parent`, in region `index` of the seats."""

    _claims: type[Claimer] = Claimer

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        incarnation: str,
        seats: SeatMap,
        index: int,
        doorbell: Doorbell,
        parent: int,
        waker: Waker | None = None,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._incarnation = incarnation
        self._seats = seats
        self._region = region = seats.regions[index]
        self._doorbell = doorbell
        self._parent = parent
        self._waker = waker or Waker([], [])
        self._told = region.told
        settings = plan.settings
        self._statement_timeout = statement_timeout(settings.lease)
        self._probe_timeout = connect_timeout(settings.lease)
        self._outage = Outage(f"worker {os.getpid()}", settings.lease)
        self._breaks = Breaks(settings.lease)
        self._free: deque[int] = deque(range(SEATS))
        self._writer = Writer(
            engine,
            region,
            self._outage,
            self._seats_freed,
            self._is_busy,
            settings.max_uncounted,
            settings.lease,
            self._is_to_blame_for,
            incarnation,
        )
        label = f"{socket.gethostname()}:{os.getpid()}"
        self._pace = Pace(settings.threads)
        self._executor = Executor(
            engine, settings, region, self._writer, self._pace, label, doorbell.ring, plan.patience
        )
        given = (self._executor, self._pace, self._free, self._give_back, Limits(settings))
        self._claimer = self._claims(engine, plan, incarnation, region, *given)
        self._bided = 0
        self._raw: object = None
        self._reached = True
        # By what this loop knows, the database cannot be reached or written: what was claimed could not run.
        self._cut_off = False

    def run(self) -> None:
        """Work until told to stop or orphaned; return when every outcome is stored."""
        self._region.tick_claims()
        self._region.tick_writes()
        watchdog.start()
        self._writer.start()
        self._executor.start()
        self._register()
        while not self._must_stop():
            self._region.tick_claims()
            try:
                pause = self._step()
                away_for = self._outage.check(self._probe)
                back, self._cut_off = self._cut_off and not away_for, away_for > 0
                pause = 0.0 if back else away_for or pause
                self._reached = True
            except Exception as error:
                pause = self._after_error(error)
            self._wait(pause)
        self._stop()

    def _must_stop(self) -> bool:
        return self._is_told_to_end() or self._claimer.finished

    def _is_told_to_end(self) -> bool:
        return self._region.stop_asked or self._region.drain_asked or os.getppid() != self._parent

    def _register(self) -> None:
        while not self._must_stop():
            self._region.tick_claims()
            try:
                self._prepare()
                with self._guarded():
                    register(self._engine, self._plan, self._incarnation, os.getpid())
            except DATABASE_ERRORS as error:
                self._doorbell.wait(self._after_error(error))
            else:
                self._say_ready()
                return

    def _say_ready(self) -> None:
        log.worker_ready(os.getpid())

    def _step(self) -> float:
        quiet = self._region.quiet_asked
        self._give_back_what_waits(at_once=quiet)
        self._prepare()
        self._cut_off |= self._handlers_are_cut_off()
        if quiet or self._writer.away or self._writer.crowded or self._cut_off:
            self._region.set_rests(False)
            self._claimer.full &= not quiet  # else jobs that end would cut the pause short, again and again
            pause = LONGEST_WAIT  # else: what ran could not be stored, or could not have run
        else:
            with self._guarded():
                pause = self._claim() if self._is_supervised() else self._bide()
        idle = (quiet or self._claimer.idle) and len(self._free) == SEATS
        self._region.set_phase(Phase.IDLE if idle else Phase.BUSY)
        return pause

    def _claim(self) -> float:
        before, self._told = self._told, self._region.told
        if self._told.woken_at != before.woken_at:
            self._claimer.wake()
        if self._told.called_at != before.called_at:
            self._claimer.help()
        pause = self._claimer.step()
        if self._claimer.came_full:
            self._waker.call()
        self._region.set_rests(self._claimer.idle)
        # Woken meanwhile, before it was seen to rest: what it was woken for may have come too late for this step.
        return 0.0 if self._region.told != self._told else pause

    def _prepare(self) -> None:
        with self._guarded():
            self._engine.prepare(self._statement_timeout)
            self._raw = self._engine.connection.connection

    def _guarded(self) -> AbstractContextManager[None]:
        return guarded(self._engine.alias, answer_timeout(self._plan.settings.lease), self._must_stop)

    def _probe(self) -> bool:
        return self._engine.probe(timeout=self._probe_timeout)

    def _handlers_are_cut_off(self) -> bool:
        """Tell whether the database fails handlers while it is there for us, as when it is full: that is an outage."""
        said, self._executor.cut_off = self._executor.cut_off, None
        if said is None or self._probe():
            return False
        self._outage.failed(OperationalError(self._engine.why_away))
        return True

    def _is_supervised(self) -> bool:
        """Tell whether leases are being extended: if not, no more is claimed, since it could not be kept."""
        supervised = time.monotonic() - self._seats.last_beat < self._plan.settings.lease * 2 / 3
        if supervised:
            self._bided = 0
        return supervised

    def _bide(self) -> float:
        """Wait for the supervisor; say so when it has been away for longer than it may need after an outage."""
        self._engine.look(self._plan.queues, self._plan.types)  # fails while the database is away
        self._bided += 1
        if self._bided == BIDES_UNTIL_SAID:
            log.unsupervised(os.getpid(), time.monotonic() - self._seats.last_beat)
        return LONGEST_WAIT

    def _is_to_blame_for(self, seconds: float) -> bool:
        """Tell whether it is by this process itself that it has been cut off for so long, and will be for ever.

        That others reach the database proves nothing: a server that is full keeps those whom it has let in.
        """
        return seconds > self._plan.settings.lease and not can_open_files()

    def _wait(self, pause: float) -> None:
        if pause <= 0:
            return
        if self._claimer.full:
            self._executor.wake_at = self._claimer.refill_at()
            # Jobs may have ended before it was known that this loop waits.
            if self._executor.in_hand <= self._executor.wake_at and self._free:
                self._executor.wake_at = -1
                return
        self._doorbell.wait(min(pause, LONGEST_REST))
        self._executor.wake_at = -1

    def _after_error(self, error: Exception) -> float:
        self._region.tick_claims()
        self._bided = 0
        self._claimer.full = False  # else jobs that end would cut the pause short, again and again
        with self._guarded():
            usable = still_works(self._engine.alias, self._raw)
        self._engine.connection.close()
        self._reached = usable
        if self._must_stop():
            return 0.0
        if not self._probe():
            self._cut_off = True
            return self._outage.failed(error)
        if self._outage.lasts:
            self._outage.over()  # it was sent in the last moments of the outage
        elif usable:
            if not could_not_write(error):
                log.loop_failed("Claiming jobs")
        else:
            log.connection_broke(f"worker {os.getpid()}", error)
        return LONGEST_WAIT if usable else self._breaks.pause()

    def _give_back_what_waits(self, at_once: bool = False) -> None:
        if self._executor.waiting and (at_once or time.monotonic() - self._claimer.given_at > WAITED_SECONDS):
            self._give_back_unstarted()
            self._pace.forget()

    def _give_back_unstarted(self) -> None:
        for item in self._executor.take_back():
            self._give_back(item)

    def _give_back(self, item: Assigned) -> None:
        self._writer.put(Ended(item.seat, item.claimed, released(item.claimed.run), 0.0))

    def _seats_freed(self, seats: Sequence[int]) -> None:
        """Called by the writer's thread."""
        self._free.extend(seats)
        if self._plan.burst and len(self._free) == SEATS:
            self._claimer.hear_news()
            self._doorbell.ring()
        elif len(self._free) <= len(seats):
            self._doorbell.ring()  # there was none

    def _is_busy(self) -> bool:
        return self._executor.in_hand > 0

    def _stop(self) -> None:
        self._region.set_phase(Phase.DRAINING)
        while True:
            self._region.tick_claims()
            if self._is_told_to_end():
                self._give_back_unstarted()
            else:
                self._give_back_what_waits()  # at a limit: what was claimed is run
            if self._executor.in_hand <= 0:
                break
            self._executor.wake_at = 0
            if self._executor.in_hand > 0:
                self._doorbell.wait(0.5)
        self._region.tick_until_ended()
        self._writer.finish()
        if self._reached:
            self._leave()
        self._region.set_phase(Phase.ENDED)

    def _leave(self) -> None:
        try:
            with self._guarded():
                leave(self._engine, self._incarnation)
        except Exception:
            pass  # the supervisor deletes it, or others do when it has been silent
