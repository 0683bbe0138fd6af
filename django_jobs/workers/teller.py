"""The thread that tells receivers of signals: no heartbeat, no schedule and no outcome waits for one."""

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
# So long the thread, and its connection, stay there for what may come.
LINGER_SECONDS = 2.0


class Teller:
    """Tells in the order given. The thread is there only while there is something to be told, and a moment longer.

    With `waits` who gives more than there is room for waits until there is: a receiver may be slow, and is dropped from only
    when it has kept the thread for `patience` seconds.
    """

    def __init__(self, most: int = MOST, patience: float = PATIENCE_SECONDS, *, waits: bool = False) -> None:
        self._most, self._patience, self._waits = most, patience, waits
        self._waiting: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread()
        self._runs = False
        self._ending = False
        self._paused_at: float | None = None
        self._telling_since: float | None = None
        self._dropped = 0
        self._dropped_since = 0.0

    def put(self, tell: Callable[[], None]) -> None:
        with self._changed:
            if self._waits:
                self._changed.wait_for(self._has_room, self._patience_left())
            if self._has_room():
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
        with self._changed:
            since = self._paused_at = self._paused_at or time.monotonic()
            self._changed.notify_all()
        if self._ended(timeout):
            return True
        if time.monotonic() - since < self._patience:
            return False
        teller_log.not_waited_for(self._patience)
        return True

    def resume(self) -> None:
        with self._changed:
            self._paused_at = None
            self._begin()

    def end(self, timeout: float) -> None:
        """Wait until all is told, or so many seconds."""
        self._ending = True
        self.resume()
        if not self._ended(timeout):
            with self._changed:
                self._drop(len(self._waiting))
                self._waiting.clear()
        self._say_dropped()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._most

    def _patience_left(self) -> float:
        since = self._telling_since
        return self._patience if since is None else max(0.0, since + self._patience - time.monotonic())

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
        self._changed.notify_all()
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
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
        connections.close_all()

    def _next(self) -> Callable[[], None] | None:
        if not self._waiting:
            self._say_dropped()
        with self._changed:
            self._telling_since = None
            if self._paused_at is None:
                self._changed.wait_for(self._is_to_go_on, LINGER_SECONDS)
            if self._waiting and self._paused_at is None:
                self._telling_since = time.monotonic()
                self._changed.notify_all()
                return self._waiting.popleft()
            self._runs = False
            return None

    def _is_to_go_on(self) -> bool:
        return bool(self._waiting) or self._ending or self._paused_at is not None

    def _say_dropped(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            teller_log.dropped(dropped, self._most)
