"""Waking worker processes that wait for jobs, and what one does that was woken."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.seats import Phase, Region

# Longer than a process says nothing of further jobs after it has said that one came.
ALERT_SECONDS = 0.1
FIRST_PAUSE = 0.005


class Alert:
    """How a process looks that was woken: again and again until ALERT_SECONDS have brought nothing, ever more slowly."""

    def __init__(self) -> None:
        self._since = -math.inf

    def begin(self) -> None:
        self._since = time.monotonic()

    def found(self) -> None:
        if self._lasts:
            self.begin()

    def pause(self) -> float:
        """Return the seconds until the next look, infinite when it is over."""
        return max(FIRST_PAUSE, (time.monotonic() - self._since) / 2) if self._lasts else math.inf

    @property
    def _lasts(self) -> bool:
        return time.monotonic() - self._since < ALERT_SECONDS


class Waker:
    """Wakes one process of a supervisor for a job, and not all: each that finds more than it can take wakes another."""

    def __init__(self, regions: Sequence[Region], doorbells: Sequence[Doorbell], own: int = -1) -> None:
        self._regions = regions
        self._doorbells = doorbells
        self._own = own
        self._last = own

    def wake(self) -> None:
        """Wake one that waits for jobs. Where none does, each is to claim once more before it waits."""
        if not self.wake_one():
            for region in self._regions:
                region.wake()

    def wake_one(self) -> bool:
        """Wake a process that waits for jobs, in turns: one that runs nothing if there is any; return whether there was."""
        number = len(self._regions)
        order = [(self._last + step) % number for step in range(1, number + 1)]
        resting = [index for index in order if index != self._own and self._is_resting(index)]
        if not resting:
            return False
        idle = (index for index in resting if self._regions[index].phase is Phase.IDLE)
        self._last = next(idle, resting[0])
        self._regions[self._last].wake()
        self._doorbells[self._last].ring()
        return True

    def _is_resting(self, index: int) -> bool:
        region = self._regions[index]
        return region.rests and region.phase in (Phase.IDLE, Phase.BUSY)
