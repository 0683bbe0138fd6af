"""The worker processes of one supervisor, each in its place, and the template that forks them."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

from django_jobs import log
from django_jobs.conf import MOST_WORKERS
from django_jobs.workers import posix
from django_jobs.workers.channel import Channel
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.fallen import Child, Fallen
from django_jobs.workers.places import Place, Post
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import Phase, Seat, SeatMap, State
from django_jobs.workers.template import fork_template
from django_jobs.workers.waking import Waker

SHORTEST_TEMPLATE_PATIENCE = 5.0
END_SECONDS = 5.0
TEMPLATE_DIED = "the template process died"


class Crew:
    def __init__(self, plan: Plan, seats: SeatMap, bury: Callable[[Fallen], None]) -> None:
        self._plan = plan
        self._seats = seats
        self._bury_it = bury
        self._doorbells = [Doorbell() for _ in seats.regions]
        self.waker = Waker(seats.regions, self._doorbells)
        self._template_pid = 0
        self._forked_at = 0.0
        self._stopping = False
        self._cut_at = 0.0
        self._gone: dict[str, int] = {}
        self.channel: Channel | None = None
        ordinary = len(seats.regions) - seats.solo
        self.places = [Place(index, region, index >= ordinary) for index, region in enumerate(seats.regions)]
        self._posts = [Post() for _ in range(plan.settings.processes)]
        self._solo_posts = [Post(solo=True) for _ in range(plan.settings.solo_processes)]
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
        """Whether every post is filled by an idle process, none is being replaced, and no suspect is run."""
        idle = [place for place in self.places if place.child is not None and place.region.phase is Phase.IDLE]
        others = any(place.draining_since or (place.solo and not place.is_free) for place in self.places)
        return len(idle) == len(self._posts) and not others

    @property
    def has_room(self) -> bool:
        """Whether a process that is to be replaced need not end first."""
        return any(place.is_free and not place.solo for place in self.places)

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
                self._vacate(place)
            case "died" if place.child is not None and place.child.pid == message["pid"]:
                self._bury(place, place.child, message["code"])

    def start_missing(self) -> None:
        self._fill(self._posts)

    def start_solo(self, number: int) -> int:
        """Start so many processes for a suspect each, or as many as may be now; return how many."""
        return self._fill(self._solo_posts, number)

    def _fill(self, posts: list[Post], most: int = MOST_WORKERS) -> int:
        now, started = time.monotonic(), 0
        for post in posts:
            if self.channel is None or post.place is not None or now < post.start_after or started >= most:
                continue
            place = next((place for place in self.places if place.is_free and place.solo == post.solo), None)
            if place is not None:
                self._start(post, place, now)
                started += 1
        return started

    def _start(self, post: Post, place: Place, now: float) -> None:
        assert self.channel is not None
        post.place, place.post = place, post
        place.starting = uuid.uuid4().hex
        place.started_at = now
        place.draining_since, place.killed_for, place.held = None, "", False
        self.channel.send(index=place.index, incarnation=place.starting, solo=place.solo)

    def drain(self, place: Place) -> None:
        """Have a process end in order, and its post filled by another one at once."""
        place.draining_since = time.monotonic()
        if place.region.phase is not Phase.DRAINING:
            place.region.ask_to_drain()
            self.ring(place.index)
        if place.post is not None:
            place.post.leave()
            place.post = None

    def ring(self, index: int) -> None:
        self._doorbells[index].ring()

    def ask_to_stop(self, cut_at: float) -> None:
        self._stopping = True
        self._cut_at = cut_at
        for place, doorbell in zip(self.places, self._doorbells, strict=True):
            place.region.ask_to_stop(cut_at)
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
            place.region.ask_to_stop(self._cut_at)
            if place.killed_for:
                self.cut += sum(seat.state is not State.CLAIMED for seat in seats)
        fallen = self._fallen(place, child, code, seats, phase)
        if fallen.in_order and place.post is not None:
            place.post.leave()  # it had reached a limit
            place.post = None
        else:
            # By what it ran, which is bounded: the jobs that wait are not to pay for it.
            self._vacate(place, worked=any(seat.state is State.RUNNING for seat in seats))
        place.draining_since = None
        # Also after an end in order: a claim that got no answer may have been made.
        self._bury_it(fallen)

    def _fallen(self, place: Place, child: Child, code: int, seats: list[Seat], phase: Phase) -> Fallen:
        why = place.killed_for
        if child.pid == 0:
            why = TEMPLATE_DIED
        failed = not why and phase is Phase.FAILED
        if failed:
            why = "its worker process failed"
        in_order = code == 0 and phase is Phase.ENDED and not seats
        how = None if why or in_order else posix.how_it_ended(code)
        if child.pid and not place.killed_for and not in_order:
            log.worker_died(child.pid, posix.how_it_ended(code), len(seats))
        ours = bool(place.killed_for) and why != TEMPLATE_DIED
        now = time.monotonic()
        late = frozenset(seat.number for seat in seats if ours and seat.is_late(now, self._plan.late_after))
        return Fallen(
            child=child,
            seats=seats,
            how=how,
            why=why,
            ours=ours or in_order,
            in_order=in_order,
            failed=failed,
            late=late,
            held=place.held,
        )

    def _vacate(self, place: Place, worked: bool = False) -> None:
        if place.post is not None:
            place.post.delay_start(place.started_at, worked)
            place.post = None
