"""When a schedule is due: its planned instants in UTC. No clock: every moment is passed in.

The rules are those of docs/schedules.md. A slot of an expression is a whole minute of UTC. A reading *exists* when such
a minute shows it on the zone's clock, seconds left away; so the few offsets that have seconds round a slot up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from django_jobs.cron import Cron
from django_jobs.exceptions import shown
from django_jobs.zones import Change, offset_at, offset_of, shifted

Nonexistent = Literal["after_gap", "skip"]
Ambiguous = Literal["first", "second", "both"]
Effect = Literal["moved", "skipped", "doubled", "first only", "second only", "unaffected"]

NONEXISTENT: tuple[Nonexistent, ...] = ("after_gap", "skip")
AMBIGUOUS: tuple[Ambiguous, ...] = ("first", "second", "both")

# No change of an offset is larger: from 14 hours behind UTC to 14 hours ahead.
_LARGEST_CHANGE = timedelta(hours=28)
# An expression whose every reading falls into a gap is given up after so many years without a slot.
_FRUITLESS = 60
_MINUTE = timedelta(minutes=1)
_EXAMPLES = 5


class Slot(NamedTuple):
    """One planned instant of a schedule."""

    at: datetime
    """In UTC."""
    reading: datetime | None
    """What the zone's clock shows, naive; of one moved by a gap the last reading that fell into it. None for `every`."""
    fold: int = 0
    """1 for the second time that a reading comes."""
    moved: bool = False
    """Whether the clock jumped over the reading, so that the slot is the first minute after the gap."""


class Slots(Protocol):
    """The slots of a schedule, in order, without end but that of the calendar."""

    def after(self, moment: datetime) -> Iterator[Slot]:
        """Yield the slots strictly after an aware moment, the earliest first; raise ValueError for a naive one."""

    def until(self, moment: datetime) -> Iterator[Slot]:
        """Yield the slots up to an aware moment, that one included, the latest first; raise ValueError for a naive one."""


@dataclass(frozen=True, slots=True)
class EverySlots:
    """The slots of a fixed interval: the anchor and whole multiples of the interval after it, in real time."""

    every: timedelta
    anchor: datetime

    def __post_init__(self) -> None:
        if self.every <= timedelta(0):
            raise ValueError(f"every={shown(self.every)}: give a timedelta above 0.")
        object.__setattr__(self, "anchor", _utc(self.anchor))

    def after(self, moment: datetime) -> Iterator[Slot]:
        return self._from(max((_utc(moment) - self.anchor) // self.every + 1, 0), 1)

    def until(self, moment: datetime) -> Iterator[Slot]:
        return self._from((_utc(moment) - self.anchor) // self.every, -1)

    def _from(self, number: int, step: int) -> Iterator[Slot]:
        while number >= 0:
            try:
                at = self.anchor + number * self.every
            except OverflowError:
                return
            yield Slot(at, None)
            number += step


@dataclass(frozen=True, slots=True)
class CronSlots:
    """The slots of a cron expression in a time zone.

    `nonexistent` says what becomes of a reading that the clock jumps over: `after_gap` fires at the first minute after
    the gap, `skip` does not fire. `ambiguous` says which one of a reading that comes twice fires: `first`, `second` or
    `both`. Neither is looked at when the expression follows real time.
    """

    cron: Cron
    zone: ZoneInfo
    nonexistent: Nonexistent = "after_gap"
    ambiguous: Ambiguous = "first"

    def __post_init__(self) -> None:
        if self.nonexistent not in NONEXISTENT:
            raise ValueError(f"nonexistent={shown(self.nonexistent)}: give one of {', '.join(NONEXISTENT)}.")
        if self.ambiguous not in AMBIGUOUS:
            raise ValueError(f"ambiguous={shown(self.ambiguous)}: give one of {', '.join(AMBIGUOUS)}.")

    def after(self, moment: datetime) -> Iterator[Slot]:
        moment = _utc(moment)
        # A second pass still to come has readings that the clock shows for the first time now.
        offset = min(offset_at(self.zone, moment), offset_at(self.zone, shifted(moment, _LARGEST_CHANGE)))
        start = shifted(moment.replace(tzinfo=None), offset).replace(second=0, microsecond=0)
        return self._ascending(start, moment)

    def until(self, moment: datetime) -> Iterator[Slot]:
        moment = _utc(moment)
        offset = max(offset_at(self.zone, moment), offset_at(self.zone, shifted(moment, -_LARGEST_CHANGE)))
        end = shifted(moment.replace(tzinfo=None), offset)
        return self._descending(end, shifted(moment, timedelta.resolution))

    def _ascending(self, start: datetime, last: datetime) -> Iterator[Slot]:
        # The first instant of a reading never lies before that of an earlier one: what is before it is complete.
        waiting: list[Slot] = []
        for reading in self.cron.readings(start):
            found = self._instants(reading)
            if not found:
                continue
            if reading.year > last.year + _FRUITLESS:
                break
            while waiting and waiting[0].at < found[0].at:
                last = waiting[0].at
                yield waiting.pop(0)
            for slot in self._kept(found):
                if slot.at > last:
                    _wait(waiting, slot)
            # No later reading comes as early as one that exists, but several may fall into one gap.
            if waiting and waiting[0].at == found[0].at and not found[0].moved:
                last = waiting[0].at
                yield waiting.pop(0)
        yield from waiting

    def _descending(self, end: datetime, last: datetime) -> Iterator[Slot]:
        # The mirror: the last instant of a reading never lies after that of a later one.
        waiting: list[Slot] = []
        for reading in self.cron.readings_back(end):
            found = self._instants(reading)
            if not found:
                continue
            if reading.year < last.year - _FRUITLESS:
                break
            for slot in self._kept(found):
                if slot.at < last:
                    _wait(waiting, slot)
            while waiting and waiting[-1].at >= found[-1].at:
                last = waiting[-1].at
                yield waiting.pop()
        yield from reversed(waiting)

    def _kept(self, found: list[Slot]) -> list[Slot]:
        if self.cron.follows_real_time:
            return [slot for slot in found if not slot.moved]
        if len(found) == 2:
            return {"first": found[:1], "second": found[1:], "both": found}[self.ambiguous]
        return [slot for slot in found if not slot.moved or self.nonexistent == "after_gap"]

    def _instants(self, reading: datetime) -> list[Slot]:
        """Return when a reading comes, in order: once, twice, or, if never, moved to the first minute after the gap.

        Nothing, where that lies beyond the ends of the calendar.
        """
        # Of a change that touches this minute, the first is the offset before it and the last the one after it.
        first, last = offset_of(self.zone, reading), offset_of(self.zone, reading.replace(second=59, fold=1))
        try:
            if first == last:
                return [Slot(_minute(reading - first), reading)]
            instants = sorted({_minute(reading - first), _minute(reading - last)})
            shows = [at for at in instants if self._shown(at) == reading]
            if shows:
                return [Slot(at, reading, fold) for fold, at in enumerate(shows)]
            return [Slot(self._after_gap(reading, instants[0], instants[-1]), reading, 0, True)]
        except OverflowError:
            return []

    def _shown(self, at: datetime) -> datetime:
        return at.astimezone(self.zone).replace(tzinfo=None, second=0, microsecond=0, fold=0)

    def _after_gap(self, reading: datetime, before: datetime, after: datetime) -> datetime:
        passed = 0
        minutes = (after - before) // _MINUTE
        while passed < minutes:
            middle = (passed + minutes) // 2
            if self._shown(before + middle * _MINUTE) > reading:
                minutes = middle
            else:
                passed = middle + 1
        return before + minutes * _MINUTE


@dataclass(frozen=True, slots=True)
class Touched:
    """What a change of the clock does to the readings of a schedule that fall into it."""

    effect: Effect
    count: int
    examples: list[datetime]
    """The first few of those readings, naive."""


def touched(slots: Slots, change: Change) -> Touched:
    """Return which readings of a schedule fall into a change of its zone's clock, and what becomes of them."""
    if not isinstance(slots, CronSlots) or slots.cron.follows_real_time:
        return Touched("unaffected", 0, [])
    at = change.at.astimezone(UTC).replace(tzinfo=None)
    low, high = sorted((shifted(at, change.before), shifted(at, change.after)))
    count, examples = 0, []
    for reading in slots.cron.readings(low):
        if reading >= high:
            break
        count += 1
        if count <= _EXAMPLES:
            examples.append(reading)
    return Touched(_effect(slots, change) if count else "unaffected", count, examples)


def _effect(slots: CronSlots, change: Change) -> Effect:
    if change.is_gap:
        return "moved" if slots.nonexistent == "after_gap" else "skipped"
    effects: dict[str, Effect] = {"first": "first only", "second": "second only", "both": "doubled"}
    return effects[slots.ambiguous]


def _utc(moment: datetime) -> datetime:
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"{shown(moment)} has no time zone; give an aware datetime.")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return shifted(moment.replace(tzinfo=UTC), -offset)


def _minute(naive: datetime) -> datetime:
    """Return the first whole minute from a naive datetime in UTC on, aware."""
    if naive.second:
        naive = naive.replace(second=0) + _MINUTE
    return naive.replace(tzinfo=UTC)


def _wait(waiting: list[Slot], slot: Slot) -> None:
    """Add a slot in order; of those at one instant the one with the later reading stays."""
    insort(waiting, slot)
    for number in range(len(waiting) - 1, 0, -1):
        if waiting[number].at == waiting[number - 1].at:
            del waiting[number - 1]
