"""The ends of runs whose rows somebody holds: they are put aside, and let the others pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_jobs.engines.base import Engine
from django_jobs.queue import rescue
from django_jobs.workers.ended import Ended

# Until it is looked again whether their rows are free.
ASIDE_SECONDS = 2.0


class Aside:
    def __init__(self) -> None:
        self._items: list[Ended] = []
        self._until = 0.0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def is_due(self) -> bool:
        return bool(self._items) and time.monotonic() >= self._until

    def put(self, items: Sequence[Ended]) -> None:
        self._items += items
        self.wait()

    def wait(self) -> None:
        self._until = time.monotonic() + ASIDE_SECONDS

    def take_free(self, engine: Engine) -> list[Ended]:
        """Return those whose rows nobody holds any more; the others stay."""
        back, self._items = parted(engine, self._items)
        self.wait()
        return back


def parted(engine: Engine, items: Sequence[Ended]) -> tuple[list[Ended], list[Ended]]:
    """Return those whose rows nobody holds, and the others."""
    locked = rescue.locked(engine, {item.claimed.id for item in items})
    free = [item for item in items if item.claimed.id not in locked]
    return free, [item for item in items if item.claimed.id in locked]
