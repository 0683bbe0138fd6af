"""Waking worker processes that wait for jobs, and what one does that was woken."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence

from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.seats import Phase, Region

# Longer than a process says nothing of further jobs after it has said that one came.
ALERT_SECONDS = 0.1
FIRST_PAUSE = 0.005
# Whoever woke it would say something of a further job by then.
LAST_SECONDS = 0.06
FIRST_LAG, LONGEST_LAG = 0.005, 0.1
# After so long without a wake-up, what others were is forgotten.
CALM_SECONDS = 5.0


class Alert:
    """How a process reacts that was woken, and how it then goes on looking.

    It claims at once, unless others were faster the last times, since the supervisors of many hosts hear the same: then it
    looks a little later, at random, once for all that woke it until then, and once more LAST_SECONDS after the last of it.
    Where it is alone it looks again and again until ALERT_SECONDS have brought nothing, ever more slowly.
    """

    def __init__(self) -> None:
        self._lag = 0.0
        # When the look for the last wake-up is to be made; None after it.
        self._due: float | None = None
        self._woken_at = self._found_at = self._since = -math.inf

    @property
    def is_contended(self) -> bool:
        """Whether somebody else was faster, more than once."""
        return self._lag > FIRST_LAG

    def begin(self) -> float:
        """Note a wake-up; return the seconds after which to look."""
        now = time.monotonic()
        if now - self._woken_at > CALM_SECONDS:
            self._lag = 0.0
        self._woken_at = now
        if self._due is None:
            self._due = now + (random.uniform(0.0, self._lag) if self.is_contended else 0.0)
        if not self.is_contended:
            self._since = now
        return max(self._due - now, 0.0)

    def found(self) -> None:
        """Note that a claim brought something."""
        now = time.monotonic()
        was_called_for = self._due is not None or now - self._since < ALERT_SECONDS
        if self._due is not None:
            self._lag = self._lag / 2 if self._lag > FIRST_LAG else 0.0
            self._due = None
        if was_called_for:
            self._found_at = now
            self._since = self._since if self.is_contended else now

    def after_claim(self) -> float:
        """Return the seconds until the next look after a claim that brought all there was: none unless it was called for."""
        return FIRST_PAUSE if time.monotonic() - self._found_at < FIRST_PAUSE else 0.0

    def pause(self) -> float:
        """Note that a look brought nothing; return the seconds until the next, infinite when none is called for."""
        now, pause = time.monotonic(), math.inf
        if self._due is not None and self._due > now:
            pause = self._due - now
        elif self._due is not None:
            self._due = None
            if now - self._found_at >= ALERT_SECONDS:  # else it was ourselves who have found it
                self._lag = min(max(2 * self._lag, FIRST_LAG), LONGEST_LAG)
        if self.is_contended:
            last = self._woken_at + LAST_SECONDS - now
            return min(pause, last) if last > 0 else pause
        passed = now - self._since
        return pause if passed >= ALERT_SECONDS else min(pause, max(FIRST_PAUSE, passed / 2))


class Waker:
    """Wakes one process of a supervisor for a job, and not all: each that finds more than it can take wakes another."""

    def __init__(self, regions: Sequence[Region], doorbells: Sequence[Doorbell], own: int = -1) -> None:
        self._regions = regions
        self._doorbells = doorbells
        self._own = own
        self._last = own

    def wake(self) -> None:
        """Wake one that waits for jobs. Where none does, each is to claim once more before it waits."""
        index = self._next()
        if index is None:
            for region in self._regions:
                region.wake()
        else:
            self._regions[index].wake()
            self._doorbells[index].ring()

    def call(self) -> bool:
        """Have one that waits for jobs claim what is too much for this process; return whether there was any."""
        index = self._next()
        if index is None:
            return False
        self._regions[index].call()
        self._doorbells[index].ring()
        return True

    def _next(self) -> int | None:
        """Return a process that waits for jobs, in turns: one that runs nothing if there is any."""
        number = len(self._regions)
        order = [(self._last + step) % number for step in range(1, number + 1)]
        resting = [index for index in order if index != self._own and self._is_resting(index)]
        if not resting:
            return None
        idle = (index for index in resting if self._regions[index].phase is Phase.IDLE)
        self._last = next(idle, resting[0])
        return self._last

    def _is_resting(self, index: int) -> bool:
        region = self._regions[index]
        return region.rests and region.phase in (Phase.IDLE, Phase.BUSY)
