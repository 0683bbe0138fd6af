from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

MEASURED = 20
KEPT = 100
# A worker claims ahead only what it will start within this many seconds.
AHEAD_SECONDS = 0.05


class Pace:
    """How long runs of each type take, and so how many more jobs than free threads a worker may claim."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def record(self, job_type: str, seconds: float) -> None:
        self._seconds[job_type].append(seconds)

    def forget(self) -> None:
        """Measure anew, since what was measured did not hold."""
        self._seconds.clear()

    def ahead(self, types: Iterable[str]) -> int:
        """Return how many jobs beyond the free threads will start within AHEAD_SECONDS.

        By the slowest type's 95th percentile; none while a type has been measured fewer than 20 times.
        """
        slowest = 0.0
        for job_type in types:
            measured = sorted(self._seconds[job_type].copy())
            if len(measured) < MEASURED:
                return 0
            slowest = max(slowest, measured[len(measured) * 95 // 100])
        return int(AHEAD_SECONDS * self._threads / max(slowest, 1e-6)) if slowest else 0
