"""How much a worker process does, and how large it grows, before it is replaced."""

from __future__ import annotations

import os
import time

from django_jobs import log
from django_jobs.conf import Conf

MEMORY_SECONDS = 1.0


class Limits:
    def __init__(self, settings: Conf) -> None:
        self._most_jobs = settings.max_jobs_per_process
        self._most_memory = settings.max_process_memory
        self._looked_at = 0.0
        self._reached = False

    def room(self, claimed: int) -> int | None:
        """Return how many more jobs may be claimed, None for any number."""
        return None if self._most_jobs is None else max(self._most_jobs - claimed, 0)

    def reached(self, claimed: int) -> bool:
        """Tell whether this process, which has claimed so many jobs, is to be replaced; say so once."""
        if not self._reached and claimed:  # whatever its size, it does something before
            self._reached = self._too_many(claimed) or self._too_large()
        return self._reached

    def _too_many(self, claimed: int) -> bool:
        if self._most_jobs is None or claimed < self._most_jobs:
            return False
        log.process_used_up(os.getpid(), claimed, self._most_jobs)
        return True

    def _too_large(self) -> bool:
        now = time.monotonic()
        if self._most_memory is None or now - self._looked_at < MEMORY_SECONDS:
            return False
        self._looked_at = now
        memory = resident_memory()
        if memory <= self._most_memory:
            return False
        log.process_too_large(os.getpid(), memory, self._most_memory)
        return True


def resident_memory() -> int:
    """Return the resident memory of this process in bytes; 0 where it cannot be told."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0  # not Linux, or no file descriptor left
