"""What a worker process claims, and when: the one place that decides between claiming, looking and waiting."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

from django_jobs import log
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.values import ClaimOrder, ClaimResult, Lane
from django_jobs.queue import rescue
from django_jobs.workers.executor import Assigned, Executor
from django_jobs.workers.lanes import Lanes
from django_jobs.workers.limits import Limits
from django_jobs.workers.looks import Looks
from django_jobs.workers.pace import Pace
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import Phase, Region
from django_jobs.workers.waking import Alert

LARGEST_CLAIM = 500
# Rows may be in other hands: a look that found something due is followed by another claim, at once and then more slowly.
CONTENDED_SECONDS = 0.02
PARKED_SECONDS = 1.0
LOST_CHECK_SECONDS = 1.0


class Claimer:
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        incarnation: str,
        region: Region,
        executor: Executor,
        pace: Pace,
        free: deque[int],
        give_back: Callable[[Assigned], None],
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._incarnation = incarnation
        self._region = region
        self._executor = executor
        self._pace = pace
        self._free = free
        self._give_back = give_back
        self._limits = limits
        self._number = 0
        self._recent_types: set[str] = set()
        self._fruitless = 0
        # How many rows the last claim met of which none was of a type known here.
        self._strangers = 0
        self._looked_idle = False
        self._lanes = Lanes(plan.settings.oldest_share)
        self._looks = Looks(plan.settings.poll_interval)
        self._due_in: float | None = None
        self._idle_until = 0.0
        self._parked_waiting = self._parked_turn = False
        self._parked_checked_at = 0.0
        self._parked_unsaid = 0
        self._parked_said_at = 0.0
        # Claims that got no answer, and until when they may still be made.
        self._unanswered: dict[str, float] = {}
        self._unanswered_checked_at = 0.0
        # How many jobs this process has claimed in its life.
        self.claimed = 0
        self.full = False
        self._alert = Alert()
        self._woken = False
        # The last step claimed all that it asked for: there may be more.
        self.came_full = False
        self._sent_at = 0.0
        self.given_at = 0.0
        # Grows, by another thread, when what ended may have left something to do.
        self.news = 0

    @property
    def finished(self) -> bool:
        """Whether this process is to claim nothing more, and to end."""
        return self._limits.reached(self.claimed)

    @property
    def idle(self) -> bool:
        """Whether a look found nothing due, and that is not over."""
        return time.monotonic() < self._idle_until

    def hear_news(self) -> None:
        self.news += 1
        self._idle_until = 0.0

    def wake(self) -> None:
        """End the rest, and then keep looking for a while."""
        self._idle_until = min(self._idle_until, time.monotonic() + self._alert.begin())
        self._looked_idle &= self._alert.is_contended
        self._woken = True

    def help(self) -> None:
        """End the rest once, since another process of this supervisor found more than it can take."""
        self._idle_until = 0.0
        self._looked_idle = False
        self._woken = True

    def step(self) -> float:
        """Claim if there is room; return the seconds until the next step unless something happens before."""
        self._give_back_unanswered()
        self._say_parked(0)
        self.came_full = False
        wanted = self._wanted()
        self.full = wanted <= 0
        if self.full:
            return self._plan.settings.poll_interval
        if self.idle:
            return self._idle_until - time.monotonic()
        news = self.news
        # Idle, a look is all that is sent; woken, the job is most likely in a lane that is known.
        may_look = self._looks.overdue if self._woken and self._lanes else self._may_look()
        if (self._looked_idle or may_look) and not self._is_due():
            return self._rest(news)
        self._looked_idle = False
        if self._claim(wanted):
            self._woken = False
            self._fruitless = 0
            return 0.0 if self.came_full or self._strangers else self._rest_briefly()
        return self._contended() if self._is_due() else self._rest(news)

    def refill_at(self) -> int:
        """Return how many jobs in hand are few enough for another claim."""
        return max(self._plan.settings.threads - 1, self._target() // 2)

    def _target(self) -> int:
        return self._plan.settings.threads + self._pace.ahead(self._recent_types)

    def _wanted(self) -> int:
        in_hand = self._executor.in_hand
        if in_hand > self.refill_at():
            return 0
        return min(self._target() - in_hand, self._room())

    def _room(self) -> int:
        room = self._limits.room(self.claimed)
        return min(len(self._free), LARGEST_CLAIM if room is None else min(room, LARGEST_CLAIM))

    def _claim(self, wanted: int) -> bool:
        """Make a claim; return whether another one may bring more."""
        if self._is_turn_of_parked():
            if self._assign(self._send(self._engine.claim_parked, wanted), wanted):
                return True
            self._parked_waiting, self._parked_checked_at = False, time.monotonic()
        if not self._lanes:
            return False
        # Where there is nothing but types unknown here, they are parked by ever larger claims.
        limit = min(max(wanted, 2 * self._strangers), self._room())
        oldest = self._lanes.oldest_of(limit)
        found = self._send(self._engine.claim, limit, self._lanes.in_turn(), oldest)
        self._lanes.claimed(found.jobs, oldest, found.parked)
        return self._assign(found, wanted)

    def _is_turn_of_parked(self) -> bool:
        """Jobs that others parked take turns with the rest; when none are known, they are tried once a second.

        But not before what somebody told of: that is not parked yet, and looks tell of those that are.
        """
        if not self._woken and time.monotonic() - self._parked_checked_at >= PARKED_SECONDS:
            self._parked_waiting = True
        self._parked_turn = self._parked_waiting and not self._parked_turn
        return self._parked_turn

    def _send(
        self,
        claim: Callable[[ClaimOrder], ClaimResult],
        wanted: int,
        lanes: tuple[Lane, ...] | None = None,
        oldest: int = 0,
    ) -> ClaimResult:
        self._number += 1
        order = ClaimOrder(
            locked_by=f"{self._incarnation}:{self._number}",
            lease=self._plan.settings.lease,
            limit=wanted,
            queues=self._plan.queues,
            types=self._plan.types,
            lanes=lanes,
            oldest=oldest,
            deployment=self._plan.settings.deployment or "",
        )
        self._sent_at = time.monotonic()
        try:
            return claim(order)
        except DATABASE_ERRORS:
            # It may have been made, or may still be, although no answer came.
            self._unanswered[order.locked_by] = time.monotonic() + self._plan.settings.lease
            raise

    def _assign(self, result: ClaimResult, wanted: int) -> bool:
        self._strangers = 0 if result.jobs else result.parked
        self._say_parked(result.unknown)
        if result.jobs:
            self.claimed += len(result.jobs)
            self.came_full = len(result.jobs) >= wanted
            self._alert.found()
            self._region.set_phase(Phase.BUSY)
            assigned = [Assigned(self._free.popleft(), claimed, self._sent_at) for claimed in result.jobs]
            self._region.take(((seat, claimed[0], claimed[1]) for seat, claimed, _ in assigned), self._number)
            self._recent_types = {claimed.type for claimed in result.jobs}
            self._pace.weigh([claimed.payload for claimed in result.jobs])
            self.given_at = time.monotonic()
            for item in assigned[:wanted]:
                self._executor.give(item)
            for item in assigned[wanted:]:
                self._give_back(item)
        return bool(result.jobs or result.parked)

    def _say_parked(self, parked: int) -> None:
        """Say once a second at most how many jobs were parked."""
        self._parked_unsaid += parked
        now = time.monotonic()
        if self._parked_unsaid and now - self._parked_said_at >= PARKED_SECONDS:
            log.types_parked(self._parked_unsaid)
            self._parked_unsaid, self._parked_said_at = 0, now

    def _may_look(self) -> bool:
        return self._until_look() <= 0

    def _until_look(self) -> float:
        # A job that somebody told of, and that no claim has met, may be in a lane that is new here.
        return self._looks.wait(told=self._woken, blind=not self._lanes)

    def _look(self) -> bool:
        """Look without locks; return whether a claim is worth while."""
        with self._looks.made():
            found = self._engine.look(self._plan.queues, self._plan.types)
        self._woken = False
        self._lanes.look(found)
        self._parked_waiting, self._parked_checked_at = found.parked, time.monotonic()
        self._due_in = found.due_in
        return found.parked or found.due_in == 0

    def _is_due(self) -> bool:
        """Tell whether something is due: by a look at all there is, if that may be, else in the lanes that are known."""
        if self._may_look():
            return self._look()
        self._due_in = self._engine.next_due(self._lanes.in_turn()) if self._lanes else None
        return self._due_in == 0

    def _rest(self, news: int) -> float:
        self._fruitless = 0
        # What ended since the look may have enqueued more: then the look has missed it.
        if news != self.news:
            return 0.0
        poll = self._plan.settings.poll_interval
        pause = poll * random.uniform(1.0, 1.1) if self._due_in is None else min(self._due_in, poll)
        pause = min(pause, self._alert.pause())
        if self._woken:
            pause = min(pause, self._until_look())
        self._looked_idle = True
        self._idle_until = time.monotonic() + pause
        return pause

    def _rest_briefly(self) -> float:
        """Rest after a claim that brought all there was, where somebody told of it and would tell of more."""
        pause = self._alert.after_claim()
        if pause > 0:
            self._looked_idle = True
            self._idle_until = time.monotonic() + pause
        return pause

    def _contended(self) -> float:
        """Return how long to leave what is due to those who hold it: other workers for a moment, a person for long."""
        self._fruitless += 1
        if self._fruitless == 1:
            return 0.0
        pause = CONTENDED_SECONDS * 2.0 ** min(self._fruitless - 2, 10)
        return random.uniform(0.5, 1.0) * min(pause, self._plan.settings.poll_interval)

    def _give_back_unanswered(self) -> None:
        now = time.monotonic()
        if not self._unanswered or now - self._unanswered_checked_at < LOST_CHECK_SECONDS:
            return
        held = [run for run in self._engine.held_by(self._incarnation) if run.locked_by in self._unanswered]
        rescue.give_back(self._engine, held, self._plan.settings.max_uncounted)
        self._unanswered = {claim: until for claim, until in self._unanswered.items() if now <= until}
        self._unanswered_checked_at = now
