from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Duty:
    """Something to be done again and again; it returns the seconds until the next time."""

    name: str
    do: Callable[[], float]
    due: float = 0.0
    # By another thread, which then wakes the one that does it.
    asked: bool = False

    @property
    def is_due(self) -> bool:
        return self.asked or time.monotonic() >= self.due
