from __future__ import annotations

import random
import threading
import time

from django_jobs import log

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Outage:
    """Whether this process can reach the jobs' database: logged once a change, waited out with growing pauses."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def failed(self, error: BaseException) -> float:
        """Note a failure; return the seconds to wait before the next try."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()
                log.database_away(self._process, error)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            return random.uniform(self._pause / 2, self._pause)

    def over(self) -> None:
        with self._lock:
            if self._since is not None:
                log.database_back(self._process, time.monotonic() - self._since)
            self._since, self._pause = None, FIRST_PAUSE

    @property
    def lasts(self) -> bool:
        return self._since is not None
