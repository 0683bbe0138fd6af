from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

from django.db import OperationalError

from django_jobs import log

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0


# A connection that breaks so long after another that broke is the first again.
BREAKS_SECONDS = 10.0


class Breaks:
    """How long to wait when a connection broke and the database answers: the first time not at all, and then ever longer.

    Some break for ever: a session that cannot be set up, or a statement that ends its server process.
    """

    def __init__(self, lease: float) -> None:
        self._longest = min(LONGEST_PAUSE, lease / 3)
        self._pause = 0.0
        self._last = -math.inf

    def pause(self) -> float:
        """Note a break; return the seconds to wait before the next try."""
        now = time.monotonic()
        if now - self._last >= BREAKS_SECONDS:
            self._pause = 0.0
        else:
            self._pause = min(max(self._pause * 2, FIRST_PAUSE), self._longest)
        self._last = now
        return random.uniform(self._pause / 2, self._pause)


class Outage:
    """Whether the threads of this process can reach the jobs' database: logged once a change, however many notice."""

    def __init__(self, process: str, lease: float) -> None:
        self.process = process
        # Whoever is back extends its leases before another, which is back as well, may take lost jobs back: after a lease.
        self._longest = min(LONGEST_PAUSE, lease / 3)
        self._lock = threading.Lock()
        self._since = 0.0
        self._reached_at = -math.inf
        # The threads that cannot reach it, each with its last pause. It is back when all of them have reached it. By their
        # names: one that ended in an outage is started anew.
        self._pauses: dict[str, float] = {}

    def failed(self, error: BaseException) -> float:
        """Note that this thread could not reach it; return the seconds to wait before its next try."""
        thread = threading.current_thread().name
        with self._lock:
            if not self._pauses:
                self._since = time.monotonic()
                log.database_away(self.process, error)
            pause = min(self._pauses.get(thread, FIRST_PAUSE) * 2, self._longest)
            self._pauses[thread] = pause
        return random.uniform(pause / 2, pause)

    def check(self, probe: Callable[[], bool]) -> float:
        """Ask whether an outage is over when this thread reached the database, perhaps only to read from it.

        Return the seconds to wait before this thread's next try, 0 when it is.
        """
        if not self._pauses or probe():
            self._reached_at = time.monotonic()
            self.over()
            return 0.0
        return self.failed(OperationalError("the database answers, and cannot be written"))

    def reached_since(self, moment: float) -> bool:
        """Tell whether a thread of this process has reached it since a moment of the monotonic clock."""
        return self._reached_at >= moment

    def over(self) -> None:
        """Note that this thread reached it."""
        if not self._pauses:
            return
        with self._lock:
            if self._pauses.pop(threading.current_thread().name, None) is not None and not self._pauses:
                log.database_back(self.process, time.monotonic() - self._since)

    def leave(self) -> None:
        """Forget what this thread noticed: it ends."""
        with self._lock:
            self._pauses.pop(threading.current_thread().name, None)

    @property
    def lasts(self) -> bool:
        return bool(self._pauses)
