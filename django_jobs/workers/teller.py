"""The thread that tells receivers of signals, in a supervisor and in `runscheduler`: no heartbeat or schedule waits for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from django.db import connections

from django_jobs import log
from django_jobs.workers import teller_log

# What comes while so many wait to be told is dropped.
MOST = 10_000
# What is dropped is counted, and said when the others are told, or after so long.
SAY_SECONDS = 60.0
# Nobody waits longer for a receiver that does not come back.
PATIENCE_SECONDS = 5.0
# So long is given at the end to what is still to be told.
END_SECONDS = 1.0


class Teller:
    """Tells in the order given. The thread is there only while there is something to be told."""

    def __init__(self, most: int = MOST, patience: float = PATIENCE_SECONDS) -> None:
        self._most, self._patience = most, patience
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread = threading.Thread()
        self._runs = False
        self._paused_at: float | None = None
        self._dropped = 0
        self._dropped_since = 0.0

    def put(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if len(self._waiting) < self._most:
                self._waiting.append(tell)
                self._begin()
                return
            self._drop(1)
        if time.monotonic() - self._dropped_since > SAY_SECONDS:
            self._say_dropped()

    def pause(self, timeout: float) -> bool:
        """Tell nothing more until `resume`; return whether the thread ended in `timeout` seconds, or is not to be waited for.

        It is not when a receiver has kept it for PATIENCE_SECONDS: it may never come back.
        """
        with self._lock:
            since = self._paused_at = self._paused_at or time.monotonic()
        if self._ended(timeout):
            return True
        if time.monotonic() - since < self._patience:
            return False
        teller_log.not_waited_for(self._patience)
        return True

    def resume(self) -> None:
        with self._lock:
            self._paused_at = None
            self._begin()

    def end(self, timeout: float) -> None:
        """Wait until all is told, or so many seconds."""
        self.resume()
        if not self._ended(timeout):
            with self._lock:
                self._drop(len(self._waiting))
                self._waiting.clear()
        self._say_dropped()

    def _drop(self, number: int) -> None:
        if not self._dropped:
            self._dropped_since = time.monotonic()
        self._dropped += number

    def _ended(self, timeout: float) -> bool:
        thread = self._thread
        if thread.ident is not None:
            thread.join(timeout)
        return not thread.is_alive()

    def _begin(self) -> None:
        if self._waiting and not self._runs and self._paused_at is None:
            self._runs = True
            self._thread = threading.Thread(target=self._loop, name="django_jobs-teller", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while (tell := self._next()) is not None:
            try:
                tell()
            except BaseException:
                log.loop_failed("A receiver of a signal")
            connections.close_all()

    def _next(self) -> Callable[[], None] | None:
        if not self._waiting:
            self._say_dropped()
        with self._lock:
            if self._waiting and self._paused_at is None:
                return self._waiting.popleft()
            self._runs = False
            return None

    def _say_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            teller_log.dropped(dropped, self._most)
