"""Where worker processes are wanted, and where they live: posts and places."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django_jobs.workers.fallen import Child
from django_jobs.workers.seats import Region, State

QUICK_DEATH_SECONDS = 10.0
LONGEST_RESTART_PAUSE = 30.0


@dataclass(slots=True)
class Post:
    """One of the PROCESSES that are wanted, across those that fill it. One that is to be replaced has left its post.

    A `solo` one is filled only while a suspect is to be run.
    """

    solo: bool = False
    place: Place | None = None
    start_after: float = 0.0
    quick_deaths: int = 0

    def leave(self) -> None:
        self.place = None
        self.start_after, self.quick_deaths = 0.0, 0

    def delay_start(self, started_at: float, worked: bool = False) -> None:
        """The first replacements come at once; a process that keeps dying at its start is given more and more time."""
        now = time.monotonic()
        self.place = None
        quick = not worked and now - started_at < QUICK_DEATH_SECONDS
        self.quick_deaths = self.quick_deaths + 1 if quick else 0
        deaths = self.quick_deaths
        self.start_after = now + (0.0 if deaths <= 2 else min(0.5 * 2 ** (deaths - 3), LONGEST_RESTART_PAUSE))


@dataclass(slots=True)
class Place:
    """Where a worker process lives: a region of the seats, and a doorbell. There are more places than posts.

    Those for solo processes are kept for them: neither kind waits for the other.
    """

    index: int
    region: Region
    solo: bool = False
    post: Post | None = None
    child: Child | None = None
    # Asked of the template and not answered: the incarnation to come.
    starting: str | None = None
    started_at: float = 0.0
    # When it last had a reason not to answer.
    excused_at: float = 0.0
    draining_since: float | None = None
    killed_for: str = ""
    # A run kept the interpreter from all others when it was killed.
    held: bool = False

    @property
    def is_free(self) -> bool:
        return self.child is None and self.starting is None

    @property
    def running(self) -> int:
        return sum(seat.state is State.RUNNING for seat in self.region.seats())
