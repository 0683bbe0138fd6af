"""What becomes of the slots that have come: a pure decision, with the time passed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile

from django_jobs.slots import CronSlots, EverySlots, Slot, Slots

# Slots of an expression that are counted after a long time without a scheduler; those before are dropped uncounted.
MOST_COUNTED = 100_000
# Slots in time that one decision looks at, at least the highest limit; the next one looks at the others.
MOST_IN_TIME = 10_000
# Occurrences that other data of the zone has already had: a day's worth of minutes, and far more.
MOST_PASSED_OVER = 10_000


class TooManyPassedOver(Exception):
    """The local time that is kept as the last one lies far ahead of all that come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a schedule says about slots that come late or too soon after another.

    `limit`: missed ones that are run; `at_once`: jobs that are made by one decision, what is left by the next.
    """

    grace: timedelta
    limit: int
    window: timedelta | None
    overlap: str
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was decided before. `reading`: the local time of the last slot, where it is that which makes an occurrence.

    `planned`: when the next slot was to come by other data of the time zone. `busy`: the last job waits or runs.
    """

    since: datetime
    reading: datetime | None = None
    fold: int = 0
    planned: datetime | None = None
    pending: datetime | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    at: datetime
    late: bool


@dataclass(slots=True, kw_only=True)
class Decision:
    """`last`: the newest slot that was dealt with, if any; `next`: the first after it, None at the end of the calendar."""

    fire: list[Fire] = field(default_factory=list)
    pending: datetime | None = None
    last: Slot | None = None
    next: Slot | None = None
    missed: int = 0
    skipped: int = 0
    dropped: int = 0


def decide(slots: Slots, rules: Rules, past: Past, now: datetime) -> Decision:
    """Decide on the slots after `past.since` up to `now`."""
    found = Decision(pending=past.pending)
    late, fresh = _parted(slots, rules, past, now, found)
    busy = past.busy
    if found.pending is not None and (not busy or rules.overlap == "allow"):
        found.fire.append(Fire(at=found.pending, late=True))
        found.pending, busy = None, True
    for slot, is_late in [*((slot, True) for slot in late), *((slot, False) for slot in fresh)]:
        if len(found.fire) == rules.at_once:
            break
        found.last = slot
        found.missed += is_late
        if not busy or rules.overlap == "allow":
            found.fire.append(Fire(at=slot.at, late=is_late))
            busy = True
        elif rules.overlap == "skip":
            found.skipped += 1
        else:
            found.skipped += found.pending is not None
            found.pending = slot.at
    found.next = next(_new(slots, past, found.last.at if found.last else past.since), None)
    return found


def _parted(slots: Slots, rules: Rules, past: Past, now: datetime, found: Decision) -> tuple[list[Slot], list[Slot]]:
    """Return the missed slots that are run nevertheless, and those that come in time, each oldest first.

    What is in time always runs; missed ones fill what is then left of the limit, the newest first. The others are
    dropped: all of them lie before those that are run, so that the newest of them is the last slot until one is run.
    """
    in_time_after = _in_time_after(rules, past, now)
    coming = islice(takewhile(lambda slot: slot.at <= now, slots.after(in_time_after)), MOST_COUNTED)
    fresh = list(islice((slot for slot in coming if not _had(slot, slots, past)), MOST_IN_TIME))
    late: list[Slot] = []
    for slot in islice(slots.until(in_time_after), MOST_COUNTED):
        if slot.at <= past.since:
            break
        if _had(slot, slots, past):
            continue
        if len(late) + len(fresh) < rules.limit and (rules.window is None or now - slot.at <= rules.window):
            late.append(slot)
            continue
        found.last = found.last or slot
        if isinstance(slots, EverySlots):
            found.dropped += _between(slots, past.since, slot.at)
            break
        found.dropped += 1
    found.missed = found.dropped
    return late[::-1], fresh


def _in_time_after(rules: Rules, past: Past, now: datetime) -> datetime:
    """Return the moment after which slots are in time; all are that were planned for later by other data of the zone."""
    least = now - rules.grace
    if past.planned is not None and past.planned >= least:
        return past.since
    return max(past.since, least - timedelta.resolution)


def _between(slots: EverySlots, since: datetime, until: datetime) -> int:
    """Return how many slots lie after `since`, up to `until`, however many those are."""
    before = max((since - slots.anchor) // slots.every, -1)
    return (until - slots.anchor) // slots.every - before


def _new(slots: Slots, past: Past, after: datetime) -> Iterator[Slot]:
    for number, slot in enumerate(slots.after(after)):
        if not _had(slot, slots, past):
            yield slot
        elif number >= MOST_PASSED_OVER:
            raise TooManyPassedOver(f"The local time of its last slot, {past.reading}, is far ahead of its next ones.")


def _had(slot: Slot, slots: Slots, past: Past) -> bool:
    """Tell whether an occurrence was dealt with at another instant, by other data of the time zone.

    By the same data none comes again: a local time comes once, or once in each pass.
    """
    if past.reading is None or slot.reading is None:
        return False
    each_pass = isinstance(slots, CronSlots) and slots.ambiguous == "both"
    return slot.reading <= past.reading and (not each_pass or slot.fold <= past.fold)
