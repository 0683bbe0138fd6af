"""A schedule that lives through many decisions, and what they were made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from django_jobs.schedules.due import Decision, Fire, Past, Rules, decide
from django_jobs.slots import CronSlots, Slot
from tests.schedules.common import MINUTE

if TYPE_CHECKING:
    from django_jobs.slots import Slots


def rules(**values: Any) -> Rules:
    usual = {"grace": MINUTE, "limit": 1, "window": None, "overlap": "allow", "at_once": 1000}
    return Rules(**{**usual, **values})


@dataclass
class Life:
    """A schedule over many ticks: what is kept of it, and all that came of its slots."""

    slots: Slots
    rules: Rules
    start: datetime
    since: datetime
    now: datetime
    last: Slot | None = None
    pending: datetime | None = None
    busy: bool = False
    fired: list[Fire] = field(default_factory=list)
    skipped: int = 0
    dropped: int = 0
    missed: int = 0

    def past(self) -> Past:
        by_wall_clock = isinstance(self.slots, CronSlots) and not self.slots.cron.follows_real_time
        reading = self.last.reading if self.last and by_wall_clock else None
        fold = self.last.fold if self.last else 0
        return Past(since=self.since, reading=reading, fold=fold, pending=self.pending, busy=self.busy)

    def tick(self) -> None:
        """Decide until nothing is due, as ticks do that come at once."""
        for _ in range(100_000):
            found = decide(self.slots, self.rules, self.past(), self.now)
            self.take(found)
            if found.next is None or found.next.at > self.now:
                return
            assert found.fire or found.last, "a tick that decides nothing would be made for ever"
        raise AssertionError("ticks without end")

    def take(self, found: Decision) -> None:
        assert len(found.fire) <= self.rules.at_once
        if found.last is not None:
            assert self.since < found.last.at <= self.now
            self.last, self.since = found.last, found.last.at
        self.pending = found.pending
        self.busy = self.busy or bool(found.fire)
        self.fired += found.fire
        self.skipped += found.skipped
        self.dropped += found.dropped
        self.missed += found.missed

    def planned(self) -> list[datetime]:
        return [slot.at for slot in takewhile(lambda slot: slot.at <= self.since, self.slots.after(self.start))]


def lived(made: tuple[Slots, datetime], ruled: Rules, ticks: list[tuple[float, bool]]) -> Life:
    slots, start = made
    life = Life(slots, ruled, start, since=start, now=start)
    for seconds, ended in ticks:
        life.now += timedelta(seconds=seconds)
        life.busy = life.busy and not ended
        life.tick()
    return life
