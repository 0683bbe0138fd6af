"""The threads of a worker process that run jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connections

from django_jobs import log, payload
from django_jobs.conf import Conf
from django_jobs.context import Context
from django_jobs.engines.base import Claimed, Engine, released
from django_jobs.workers.pace import Pace
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import Region, State
from django_jobs.workers.writer import Ended, Writer

# A claim older than this is asked for again before it is started: the supervisor gives back those twice as old.
STALE_SECONDS = 5.0


class Assigned(NamedTuple):
    seat: int
    claimed: Claimed
    at: float


class Executor:
    def __init__(
        self, engine: Engine, settings: Conf, region: Region, writer: Writer, pace: Pace, label: str, ring: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._region = region
        self._writer = writer
        self._pace = pace
        self._label = label
        self._ring = ring
        self._queue: SimpleQueue[Assigned | None] = SimpleQueue()
        self._given = 0
        # One counter a thread: none needs a lock.
        self._taken = [0] * settings.threads
        # The loop asks to be woken when no more jobs than this are in hand; below zero, it is not waiting.
        self.wake_at = -1
        self._threads = [
            threading.Thread(target=self._loop, args=(index,), name=f"django_jobs-{index}", daemon=True)
            for index in range(settings.threads)
        ]

    def start(self) -> None:
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
                assigned = self._queue.get_nowait()
                if assigned is not None:
                    back.append(assigned)
        except Empty:
            self._given -= len(back)
            return back

    def _loop(self, index: int) -> None:
        runner = Runner(self._engine, self._settings, self._label)
        while True:
            assigned = self._queue.get()
            if assigned is None:
                return
            try:
                self._run(runner, assigned)
            except BaseException:  # nothing of a handler gets here; a thread that ended would be missed for ever
                log.loop_failed("Running a job")
            self._taken[index] += 1
            if self.in_hand <= self.wake_at:
                self._ring()

    def _run(self, runner: Runner, assigned: Assigned) -> None:
        seat, claimed, at = assigned
        started = time.monotonic()
        if started - at > STALE_SECONDS and not self._renewed(claimed):
            self._writer.put(Ended(seat, claimed, released(claimed.run), 0.0))
            return
        self._region.mark(seat, State.RUNNING)
        ended = runner.run(claimed, self._context(seat, claimed, started))
        self._region.mark(seat, State.RETURNED)
        seconds = time.monotonic() - started
        self._pace.record(claimed.type, seconds)
        self._writer.put(Ended(seat, claimed, ended, seconds))

    def _renewed(self, claimed: Claimed) -> bool:
        try:
            return bool(self._engine.extend([claimed.run], self._settings.lease))
        except (DatabaseError, InterfaceError):
            connections[self._engine.alias].close()
            return False

    def _context(self, seat: int, claimed: Claimed, started: float) -> Context:
        deadline = None if claimed.timeout is None else started + claimed.timeout
        region, writer, run = self._region, self._writer, claimed.run

        def stop_asked() -> bool:
            if deadline is not None and time.monotonic() >= deadline:
                return True
            return region.stop_asked or region.run_stopped(seat, run.token)

        return Context(
            job_id=claimed.id,
            attempt=claimed.attempts + 1,
            run=claimed.token,
            idempotency_key=claimed.idempotency_key or f"job:{claimed.id}",
            slot=claimed.slot,
            stop_asked=stop_asked,
            report=lambda progress: writer.report(run, payload.dump(progress)),
        )

