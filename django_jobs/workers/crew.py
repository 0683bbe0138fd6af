"""The worker processes of one supervisor, each in its place, and the template that forks them."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_jobs import log
from django_jobs.workers import posix
from django_jobs.workers.channel import Channel
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.fallen import Child, Fallen
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import Phase, Region, Seat, SeatMap, State
from django_jobs.workers.template import fork_template

QUICK_DEATH_SECONDS = 10.0
LONGEST_RESTART_PAUSE = 30.0
SHORTEST_TEMPLATE_PATIENCE = 5.0
END_SECONDS = 5.0
TEMPLATE_DIED = "the template process died"


@dataclass(slots=True)
class Place:
    """Where one worker process lives, across its incarnations."""

    index: int
    region: Region
    child: Child | None = None
    # Asked of the template and not answered: the incarnation to come.
    starting: str | None = None
    started_at: float = 0.0
    start_after: float = 0.0
    # When it last had a reason not to answer.
    excused_at: float = 0.0
    quick_deaths: int = 0
    killed_for: str = ""

    @property
    def running(self) -> int:
        return sum(seat.state is State.RUNNING for seat in self.region.seats())


class Crew:
    def __init__(self, plan: Plan, seats: SeatMap, bury: Callable[[Fallen], None]) -> None:
        self._plan = plan
        self._seats = seats
        self._bury_it = bury
        self._doorbells = [Doorbell() for _ in seats.regions]
        self._template_pid = 0
        self._forked_at = 0.0
        self._stopping = False
        self._gone: dict[str, int] = {}
        self.channel: Channel | None = None
        self.places = [Place(index, region) for index, region in enumerate(seats.regions)]
        # How many runs were cut by us, or lost before their outcome was stored, after the grace.
        self.cut = 0

    def fork_template(self) -> None:
        """Fork the template; no other thread may run in this process."""
        self._forked_at = time.monotonic()
        self._template_pid, self.channel = fork_template(self._plan, self._seats, self._doorbells)

    @property
    def pids(self) -> list[int]:
        children = [child.pid for child in self.living]
        return [self._template_pid, *children] if self.channel is not None else children

    @property
    def living(self) -> list[Child]:
        # Also asked by the heart's thread: a child is looked at once, since it may be gone a moment later.
        return [child for place in self.places if (child := place.child) is not None]

    @property
    def all_gone(self) -> bool:
        return not self.living and not any(place.starting for place in self.places)

    @property
    def all_idle(self) -> bool:
        return all(place.child is not None and place.region.phase is Phase.IDLE for place in self.places)

    def counters(self) -> dict[str, int]:
        """Return how many runs ended, by kind, since the start."""
        totals = dict(self._gone)
        for place in self.places:
            for name, number in place.region.counters().items():
                totals[name] = totals.get(name, 0) + number
        return totals

    def hear(self) -> None:
        """Take note of what the template says; when it is gone, so are all its children."""
        if self.channel is None:
            return
        messages = self.channel.receive()
        if messages is None:
            self._lose_template()
            return
        for message in messages:
            self._hear(self.places[message["index"]], message)

    def _hear(self, place: Place, message: dict[str, Any]) -> None:
        match message["event"]:
            case "started" if place.starting is not None:
                place.child = Child(index=place.index, incarnation=place.starting, pid=message["pid"])
                place.starting = None
            case "refused":
                place.starting = None
                self._delay_start(place)
            case "died" if place.child is not None and place.child.pid == message["pid"]:
                self._bury(place, place.child, message["code"])

    def start_missing(self) -> None:
        now = time.monotonic()
        for place in self.places:
            if self.channel and place.child is None and place.starting is None and now >= place.start_after:
                place.starting = uuid.uuid4().hex
                place.started_at = now
                place.killed_for = ""
                self.channel.send(index=place.index, incarnation=place.starting)

    def ask_to_stop(self) -> None:
        self._stopping = True
        for place, doorbell in zip(self.places, self._doorbells, strict=True):
            place.region.ask_to_stop()
            doorbell.ring()

    def kill(self, place: Place, why: str) -> None:
        assert place.child is not None
        place.killed_for = why
        posix.end(place.child.pid)

    def watch_template(self, since: float) -> None:
        """End a template that has not ticked for long, as a stopped one does not: its children must be waited for."""
        last = max(self._seats.template_tick, self._forked_at, since)
        if self.channel and time.monotonic() - last > max(self._plan.settings.lease / 3, SHORTEST_TEMPLATE_PATIENCE):
            posix.end(self._template_pid)

    def _lose_template(self) -> None:
        """The template alone can fork, and it alone sees its children end: they are ended, and all starts anew."""
        log.template_died()
        self.end_all(TEMPLATE_DIED)
        for place in self.places:
            if place.starting is not None:
                self._bury(place, Child(index=place.index, incarnation=place.starting, pid=0), -signal.SIGKILL)
        assert self.channel is not None
        self.channel.close()
        self.channel = None

    def end_all(self, why: str) -> None:
        """Kill all worker processes, wait for their end, and bury them."""
        children = [(place, place.child) for place in self.places if place.child is not None]
        for place, _ in children:
            self.kill(place, why)
        for place, child in children:
            posix.wait_for_end(child.pid, END_SECONDS)
            self._bury(place, child, -signal.SIGKILL)

    def dismiss_template(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
            posix.wait_for_end(self._template_pid, END_SECONDS)

    def _bury(self, place: Place, child: Child, code: int) -> None:
        """Take what a dead child left: its counters, and its seats to be rescued; make room for the next."""
        seats, phase = place.region.seats(), place.region.phase
        for name, number in place.region.counters().items():
            self._gone[name] = self._gone.get(name, 0) + number
        place.region.clear()
        place.child = place.starting = None
        if self._stopping:
            place.region.ask_to_stop()
            if place.killed_for:
                self.cut += sum(seat.state is not State.CLAIMED for seat in seats)
        # Also after an end in order: a claim that got no answer may have been made.
        self._bury_it(self._fallen(place, child, code, seats, phase))
        self._delay_start(place)

    def _fallen(self, place: Place, child: Child, code: int, seats: list[Seat], phase: Phase) -> Fallen:
        why = place.killed_for
        if child.pid == 0:
            why = TEMPLATE_DIED
        if not why and phase is Phase.FAILED:
            why = "its worker process failed"
        in_order = code == 0 and phase is Phase.ENDED and not seats
        how = None if why or in_order else posix.how_it_ended(code)
        if child.pid and not place.killed_for and not in_order:
            log.worker_died(child.pid, posix.how_it_ended(code), len(seats))
        ours = in_order or (bool(place.killed_for) and why != TEMPLATE_DIED)
        return Fallen(child=child, seats=seats, how=how, why=why, ours=ours)

    def _delay_start(self, place: Place) -> None:
        """The first replacements come at once; a process that keeps dying at its start is given more and more time."""
        now = time.monotonic()
        place.quick_deaths = place.quick_deaths + 1 if now - place.started_at < QUICK_DEATH_SECONDS else 0
        pause = 0.0 if place.quick_deaths <= 2 else min(0.5 * 2 ** (place.quick_deaths - 3), LONGEST_RESTART_PAUSE)
        place.start_after = now + pause
