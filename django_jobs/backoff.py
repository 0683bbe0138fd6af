from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from django_jobs.exceptions import InvalidJob


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
        for name in ("base", "factor", "cap"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InvalidJob(f"Backoff({name}={value!r}): give a finite number.")
        if self.base < 0 or self.cap < 0 or self.factor < 1:
            raise InvalidJob(f"{self!r}: base and cap must be at least 0 seconds, factor at least 1.")

    def ceiling(self, attempts: int) -> float:
        """Return the longest wait in seconds after `attempts` failed attempts."""
        if self.base == 0 or self.base >= self.cap:
            return min(self.base, self.cap)
        # The exponent is capped before the power is taken: factor ** 2000 would overflow.
        steps = max(attempts - 1, 0)
        if self.factor > 1:
            steps = min(steps, math.ceil(math.log(self.cap / self.base, self.factor)))
        return float(min(self.cap, self.base * self.factor ** min(steps, 1024 if self.factor == 1 else steps)))

    def delay(self, attempts: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Return the seconds to wait after `attempts` failed attempts."""
        return uniform(0.0, self.ceiling(attempts))
