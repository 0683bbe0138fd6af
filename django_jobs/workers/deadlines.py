"""How a run is made to end: at its deadline in steps, and an async one also when it is stopped.

At the deadline the statement being executed is cancelled, and the task of an async handler. A while later an exception
is raised in the handler's thread, or its task is cancelled again, and connections that still wait are broken. After as
long again the supervisor, which finds the deadline in the run's seat, replaces the process.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from django_jobs.workers import statements
from django_jobs.workers.connections import of_this_thread
from django_jobs.workers.failure import end_process_on_error
from django_jobs.workers.pinned import PinnedCall
from django_jobs.workers.seats import Region

# How often it is looked whether an async run is to stop; others need only their deadlines.
LOOK_SECONDS = 0.4
MOMENT = 0.02


class Watch:
    """One run, and what was done to end it. Made in the thread that runs it; `deadline` is on the monotonic clock."""

    def __init__(
        self,
        deadline: float = math.inf,
        patience: float = math.inf,
        is_stopped: Callable[[], bool] = lambda: False,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self.deadline = deadline
        self._patience = patience
        self._is_stopped = is_stopped
        self._ring = ring
        self._sessions = of_this_thread()
        self._call = PinnedCall()
        self._steps = 0
        self._insist_at = math.inf
        self._is_async = False
        self._cancel_task: Callable[[], object] | None = None
        # Whether it was told to stop before its deadline came.
        self.stopped = False

    def call(self, function: Callable[[], Any]) -> PinnedCall:
        """Call the function; return how that ended, whatever was done to end it."""
        self._call.make(function)
        return self._call

    @property
    def passed(self) -> bool:
        return self._steps > 0 or time.monotonic() >= self.deadline

    def expect_task(self) -> None:
        """Take note that the handler is async, and so runs in another thread than the call that waits for it."""
        self._is_async = True

    def begin_task(self) -> None:
        """Take note, in the loop's thread, of the task that runs an async handler."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._call.lock:
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._steps or self.stopped:
                task.cancel()
        self._ring()

    def look(self, now: float) -> float:
        """Do what is due, in the watcher's thread; return when to look again."""
        lock = self._call.lock
        if not lock.acquire(blocking=False):
            return now + MOMENT  # it is just being left
        try:
            # It may not have begun yet, or have ended.
            return self._step(now) if self._call.inside else max(self.deadline, now + MOMENT)
        finally:
            lock.release()

    def _step(self, now: float) -> float:
        if not self.stopped and not self._steps and self._is_stopped():
            self.stopped = True
            self._cancel()
        if self._steps == 0 and now >= self.deadline:
            # The next step is as much later than this one, however late this is.
            self._steps, self._insist_at = 1, now + self._patience
            statements.cancel(self._sessions)
            self._cancel()
        if self._steps == 1 and now >= self._insist_at:
            self._steps = 2
            statements.shut_down(self._sessions)
            self._cancel()
            if not self._is_async:
                self._call.interrupt()
        due = (self.deadline, self._insist_at, math.inf)[self._steps]
        return min(due, now + LOOK_SECONDS) if self._is_async else due

    def _cancel(self) -> None:
        """Cancel the task of an async handler, if it has begun."""
        if self._cancel_task is not None:
            try:
                self._cancel_task()
            except RuntimeError:
                pass  # its loop is closed: it has ended


class Watcher:
    """The thread of a worker process that looks after the runs. It sleeps until the earliest deadline."""

    def __init__(self, region: Region, threads: int) -> None:
        self._region = region
        # One for each thread that runs jobs, written by that thread alone.
        self._watches: list[Watch | None] = [None] * threads
        self._wakes_at = math.inf
        self._bell = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._loop, name="django_jobs-watcher", daemon=True).start()

    def begin(self, thread: int, watch: Watch) -> None:
        self._watches[thread] = watch
        if watch.deadline < self._wakes_at:
            self.ring()

    def end(self, thread: int) -> None:
        self._watches[thread] = None

    def ring(self) -> None:
        self._bell.set()

    def _loop(self) -> None:
        with end_process_on_error(self._region):
            while True:
                self._tick()

    def _tick(self) -> None:
        self._bell.clear()
        # Whoever begins from here on rings, unless it is sure to be seen.
        self._wakes_at = math.inf
        now = time.monotonic()
        next_at = min((watch.look(now) for watch in list(self._watches) if watch is not None), default=math.inf)
        self._wakes_at = next_at
        self._bell.wait(None if next_at == math.inf else max(next_at - time.monotonic(), 0.0))
