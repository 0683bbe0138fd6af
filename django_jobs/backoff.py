from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from django_jobs.exceptions import InvalidJob, shown

# Ten years in seconds; what is longer or grows faster is a mistake.
LARGEST = 315_360_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a job waits before it is tried again: full jitter over an exponential.

    After the n-th failed attempt the wait is a random number of seconds between 0 and
    `min(cap, base * factor ** (n - 1))`.
    """

    base: float = 2.0
    factor: float = 3.0
    cap: float = 300.0

    def __post_init__(self) -> None:
        for name, least in (("base", 0), ("factor", 1), ("cap", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
                raise InvalidJob(f"Backoff({name}={shown(value)}): give a number from {least} to {LARGEST:,}.")

    def ceiling(self, attempts: int) -> float:
        """Return the longest wait in seconds after `attempts` failed attempts."""
        try:
            grown = self.base * float(self.factor) ** max(attempts - 1, 0)
        except OverflowError:
            grown = float(self.cap if self.base else 0)
        return float(min(self.cap, grown))

    def delay(self, attempts: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Return the seconds to wait after `attempts` failed attempts."""
        return uniform(0.0, self.ceiling(attempts))
