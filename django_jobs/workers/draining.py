"""Replacing worker processes that are to end: when that begins, and when what still runs in them is cut."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_jobs import log
from django_jobs.workers.crew import Crew
from django_jobs.workers.places import Place
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import Phase, Seat, State

SHORTEST_SILENCE = 2.0
# After an outage of the database the outcomes that wait for it are given so long to be stored.
AFTER_OUTAGE_SECONDS = 10.0


class Drainer:
    """Looks after processes in which a run did not end at its deadline, and after those that reached a limit.

    A process that is to be replaced claims nothing more, and another one takes its place at once. Its other runs may
    finish for DRAIN; in the second half of that they are told to stop. Nobody's run goes back before it is dead.
    """

    def __init__(self, plan: Plan, crew: Crew) -> None:
        self._plan = plan
        self._crew = crew
        self._silence = max(plan.patience, SHORTEST_SILENCE)

    def look(self, awake_since: float, cut_off: bool) -> None:
        now = time.monotonic()
        awake = now - awake_since >= self._plan.late_after
        for place in self._crew.places:
            if place.child is None or place.killed_for:
                continue
            if cut_off:
                self._wait_for_database(place, now)
                continue
            seats = place.region.seats()
            # After we all have been frozen, runs that were so past their deadline are given the time to end.
            late = [seat for seat in seats if seat.is_late(now, self._plan.late_after)] if awake else []
            silent = now - max(*place.region.ticks, awake_since, place.started_at) >= self._silence
            if late and silent and self._all_are_late(seats):
                self._end(place, late, is_held=True)
            elif place.draining_since is None:
                self._begin_if_due(place, late, silent)
            else:
                self._go_on(place, seats, late, silent)

    def _wait_for_database(self, place: Place, now: float) -> None:
        if place.draining_since is not None:
            least = now + AFTER_OUTAGE_SECONDS - self._plan.settings.drain
            place.draining_since = max(place.draining_since, least)

    def _all_are_late(self, seats: Sequence[Seat]) -> bool:
        """Tell whether nothing runs any more that has a deadline and time left to end."""
        now = time.monotonic()
        return not any(
            seat.state is State.RUNNING and seat.deadline and not seat.is_late(now, self._plan.late_after)
            for seat in seats
        )

    def _begin_if_due(self, place: Place, late: Sequence[Seat], silent: bool) -> None:
        assert place.child is not None
        if place.region.phase is Phase.DRAINING:
            self._crew.drain(place)
        elif late and (silent or place.solo or self._crew.has_room or len(late) >= self._plan.settings.threads):
            log.process_drains(place.child.pid, [seat.job_id for seat in late], self._plan.settings.drain)
            self._crew.drain(place)

    def _go_on(self, place: Place, seats: Sequence[Seat], late: Sequence[Seat], silent: bool) -> None:
        assert place.child is not None
        assert place.draining_since is not None
        drain = self._plan.settings.drain
        left = place.draining_since + drain - time.monotonic()
        if late and len(late) == len(seats):
            self._end(place, late)
        elif left <= 0:
            log.drain_over(place.child.pid, sum(seat.state is State.RUNNING for seat in seats) - len(late))
            self._end(place, late, is_held=silent)
        elif left <= drain / 2 and not place.region.stop_asked:
            place.region.ask_to_stop(cut_at=self._plan.cut_at(place.draining_since + drain, drain))

    def _end(self, place: Place, late: Sequence[Seat], is_held: bool = False) -> None:
        assert place.child is not None
        if late:
            log.process_ended(place.child.pid, [seat.job_id for seat in late], is_held)
        place.held = is_held
        over = f"was replaced, and DRAIN ({self._plan.settings.drain:g} s) was over"
        self._crew.kill(place, f"its process {'did not answer' if is_held else over}")
