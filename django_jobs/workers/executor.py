"""The threads of a worker process that run jobs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.db import connections

from django_jobs import log, payload
from django_jobs.conf import Conf
from django_jobs.context import Context
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.causes import DATABASE_AWAY, EXPIRED, TOO_LATE, WORKER_FAILED
from django_jobs.engines.values import Claimed, Settlement, released
from django_jobs.queue.history import entry
from django_jobs.workers.calling import context_of
from django_jobs.workers.connections import answer_timeout
from django_jobs.workers.deadlines import Watch, Watcher
from django_jobs.workers.ended import Ended
from django_jobs.workers.failure import end_process_on_error
from django_jobs.workers.pace import Pace
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import Region, State
from django_jobs.workers.verdict import LOSS_PAUSE
from django_jobs.workers.watchdog import guarded
from django_jobs.workers.writer import Writer

# A claim older than this is asked for again before it is started: the supervisor gives back those twice as old.
STALE_SECONDS = 5.0


class Assigned(NamedTuple):
    """A claim and its seat; `at` is when it was sent, at which the database cannot have made it yet."""

    seat: int
    claimed: Claimed
    at: float


class Executor:
    def __init__(
        self,
        engine: Engine,
        settings: Conf,
        region: Region,
        writer: Writer,
        pace: Pace,
        label: str,
        ring: Callable[[], None],
        patience: float,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._region = region
        self._writer = writer
        self._pace = pace
        self._label = label
        self._ring = ring
        self._patience = patience
        self._watcher = Watcher(region, settings.threads)
        self._stale = min(STALE_SECONDS, settings.lease / 2)
        self._queue: SimpleQueue[Assigned] = SimpleQueue()
        self._given = 0
        # One counter a thread: none needs a lock.
        self._taken = [0] * settings.threads
        # The loop asks to be woken when no more jobs than this are in hand; below zero, it is not waiting.
        self.wake_at = -1
        # What a run said that could not reach the jobs' database: more of them would end like it.
        self.cut_off: str | None = None
        self._threads = [
            threading.Thread(target=self._loop, args=(index,), name=f"django_jobs-{index}", daemon=True)
            for index in range(settings.threads)
        ]

    def start(self) -> None:
        self._watcher.start()
        for thread in self._threads:
            thread.start()

    def give(self, assigned: Assigned) -> None:
        self._given += 1
        self._queue.put(assigned)

    @property
    def in_hand(self) -> int:
        """How many jobs were given and have not ended."""
        return self._given - sum(self._taken)

    @property
    def waiting(self) -> bool:
        return not self._queue.empty()

    def take_back(self) -> list[Assigned]:
        """Take the jobs that no thread has started."""
        back = []
        try:
            while True:
                back.append(self._queue.get_nowait())
        except Empty:
            self._given -= len(back)
            return back

    def _loop(self, index: int) -> None:
        with end_process_on_error(self._region):
            self._run_all(index)

    def _run_all(self, index: int) -> None:
        runner = Runner(self._engine, self._settings, self._label, self._writer.reported)
        while True:
            assigned = self._queue.get()
            try:
                ended = self._run(runner, assigned, index)
            except BaseException:
                # Not the handler's doing, whose errors are values here; without an end the job would be held for ever.
                log.loop_failed(f"Running job {assigned.claimed.id}")
                ended = Ended(assigned.seat, assigned.claimed, self._lost(assigned.claimed), 0.0)
            self._region.mark(assigned.seat, State.RETURNED)
            self._writer.put(ended)
            self._taken[index] += 1
            if self.wake_at >= 0 and self.in_hand <= self.wake_at:
                self._ring()

    def _run(self, runner: Runner, assigned: Assigned, index: int) -> Ended:
        seat, claimed, at = assigned
        renewed = time.monotonic() - at <= self._stale or self._renewed(claimed)
        started = time.monotonic()
        deadline = math.inf if claimed.timeout is None else started + claimed.timeout
        self._region.begin(seat, deadline)
        # In this order: the supervisor asks first and looks at the seat then, so that it or we see the other.
        if not renewed or self._region.run_stopped(seat, claimed.id, claimed.token):
            return Ended(seat, claimed, released(claimed.run), 0.0)
        if claimed.expired:
            return Ended(seat, claimed, too_late(claimed), 0.0)
        if claimed.expires_in is not None and started - at >= claimed.expires_in:
            # Perhaps it is expired by now: whoever claims it next is told by the database's clock.
            return Ended(seat, claimed, released(claimed.run), 0.0)
        watch = Watch(deadline, self._patience, lambda: self._is_stopped(seat, claimed), self._watcher.ring)
        self._watcher.begin(index, watch)
        try:
            outcome = runner.run(claimed, self._context(seat, claimed, deadline), watch)
        finally:
            self._watcher.end(index)
        if isinstance(outcome, Settlement) and outcome.cause == DATABASE_AWAY:
            self.cut_off = outcome.error
        seconds = time.monotonic() - started
        self._pace.record(claimed.type, seconds)
        return Ended(seat, claimed, outcome, seconds)

    def _lost(self, claimed: Claimed) -> Settlement:
        cause, error = WORKER_FAILED, "The worker failed while it ran the job; its log says why."
        return Settlement(
            run=claimed.run,
            status="ready",
            counts="loss",
            cause=cause,
            delay=LOSS_PAUSE,
            error=error,
            entry=entry(claimed.token, cause, error, self._label, 0.0),
        )

    def _renewed(self, claimed: Claimed) -> bool:
        try:
            with guarded(self._engine.alias, answer_timeout(self._settings.lease)):
                return self._engine.renew(claimed.run, self._settings.lease)
        except DATABASE_ERRORS:
            connections[self._engine.alias].close()
            return False

    def _is_stopped(self, seat: int, claimed: Claimed) -> bool:
        """Tell whether the run is to be cut off now, if it can be."""
        return self._region.cut_due or self._region.run_stopped(seat, claimed.id, claimed.token)

    def _context(self, seat: int, claimed: Claimed, deadline: float) -> Context:
        region, writer, run = self._region, self._writer, claimed.run

        def stop_asked() -> bool:
            if time.monotonic() >= deadline:
                return True
            return region.stop_asked or region.run_stopped(seat, run.id, run.token)

        def report(progress: dict[str, object]) -> None:
            writer.report(run, payload.dump(progress))

        return context_of(claimed, stop_asked, report)


def too_late(claimed: Claimed) -> Settlement:
    """Return the end of a job that expired before it was claimed."""
    line = entry(claimed.token, TOO_LATE, EXPIRED, "", 0.0)
    return Settlement(run=claimed.run, status="cancelled", counts="nothing", cause=TOO_LATE, error=EXPIRED, entry=line)
