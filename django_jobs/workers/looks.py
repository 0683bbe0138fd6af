"""When a worker process looks at every lane from its beginning, which may have to read what is long claimed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# Once in so many seconds, or in so many times what it takes.
LOOK_SECONDS = 0.9
LOOK_SHARE = 20
# However long looks take: a claim cannot see what came to be below its place, nor a lane that is new.
LONGEST_PAUSE = 10.0
# Where no lane is known, or somebody told of a job, more of the time is spent on looks.
WOKEN_SECONDS = 0.1
EAGER_SHARE = 2
# After so many times the pause one is made although claims bring jobs.
OVERDUE = 2


class Looks:
    def __init__(self, poll_interval: float) -> None:
        self._shortest = min(LOOK_SECONDS, poll_interval)
        self._at = -math.inf
        # What the last two took: one that was slow by itself, as on a frozen machine, says nothing of the next.
        self._took = deque([0.0, 0.0], maxlen=2)

    @contextmanager
    def made(self) -> Iterator[None]:
        """Take note of a look, also of one that fails: what is known is claimed before the next."""
        self._at = time.monotonic()
        try:
            yield
        finally:
            self._took.append(time.monotonic() - self._at)

    def wait(self, *, told: bool, blind: bool) -> float:
        """Return the seconds until the next, for whoever was told of a job that no claim has met, or knows no lane."""
        pause = self._pause()
        if told or blind:
            pause = max(WOKEN_SECONDS if told else self._shortest, EAGER_SHARE * min(self._took))
        return max(self._at + pause - time.monotonic(), 0.0)

    @property
    def overdue(self) -> bool:
        """Whether one must be made although claims bring jobs: who is told of one again and again would never look."""
        return time.monotonic() >= self._at + OVERDUE * self._pause()

    def _pause(self) -> float:
        took = min(self._took)
        return max(self._shortest, min(LOOK_SHARE * took, max(LONGEST_PAUSE, EAGER_SHARE * took)))
