from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

MEASURED = 20
KEPT = 100
# A worker claims ahead only what it will start within this many seconds.
AHEAD_SECONDS = 0.05
# What it claims ahead has so many characters of arguments at most: it has them in memory, and so has the server.
AHEAD_CHARACTERS = 4_000_000
# What was seen to be large is expected to come again for some claims.
FADING = 0.9


class Pace:
    """How long runs of each type take and how large arguments are: so many more jobs than free threads may be claimed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._characters = 0.0

    def record(self, job_type: str, seconds: float) -> None:
        self._seconds[job_type].append(seconds)

    def weigh(self, payloads: Sequence[str]) -> None:
        """Take note of the arguments that a claim brought."""
        self._characters = max(sum(map(len, payloads)) / len(payloads), FADING * self._characters)

    def forget(self) -> None:
        """Measure anew, since what was measured did not hold."""
        self._seconds.clear()

    def ahead(self, types: Iterable[str]) -> int:
        """Return how many jobs beyond the free threads will start within AHEAD_SECONDS.

        By the slowest type's 95th percentile; none while a type has been measured fewer than 20 times. Fewer where their
        arguments are so large that they would have more than AHEAD_CHARACTERS.
        """
        slowest = 0.0
        for job_type in types:
            measured = sorted(self._seconds[job_type].copy())
            if len(measured) < MEASURED:
                return 0
            slowest = max(slowest, measured[len(measured) * 95 // 100])
        in_time = int(AHEAD_SECONDS * self._threads / max(slowest, 1e-6)) if slowest else 0
        return min(in_time, int(AHEAD_CHARACTERS / max(self._characters, 1.0)))
