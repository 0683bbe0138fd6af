"""Schedules, moments and zones for the tests; zones with clock changes of any size as well."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from django_jobs.cron import Cron
from django_jobs.slots import AMBIGUOUS, NONEXISTENT, CronSlots, Slot, Slots
from django_jobs.zones import zone

SECOND = timedelta(seconds=1)

# With changes of 15 minutes to a day, at midnight, at odd offsets, twice a year and once for ever.
ZONES = [
    *("UTC", "America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "Antarctica/Troll"),
    *("Pacific/Apia", "Pacific/Kwajalein", "Asia/Kathmandu", "Africa/Monrovia", "Africa/Casablanca", "America/Havana"),
    *("Asia/Gaza", "Asia/Pyongyang", "America/Caracas", "America/St_Johns", "Pacific/Chatham", "Antarctica/Casey"),
    *("America/Sao_Paulo", "Pacific/Kiritimati"),
]
MINUTES = ["*", "*/15", "0", "30", "59", "0,30", "7", "29-31", "45/7"]
HOURS = ["*", "*/2", "*/5,3", "0", "1", "2", "3", "12", "23", "0-4", "1-2", "0-23", "0,2", "22/1", "0/3"]
DAYS = ["* * *"] * 6 + ["L * *", "* * 0-3", "*/2 * 1", "1-31/3 * *", "* 3,10 *", "* * sun#1,mon"]

MOMENTS = st.datetimes(datetime(1969, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def slots(text: str, key: str, nonexistent: Any = "after_gap", ambiguous: Any = "first") -> CronSlots:
    return CronSlots(Cron.parse(text), zone(key), nonexistent, ambiguous)


def between(schedule: Slots, start: datetime, end: datetime) -> list[Slot]:
    """Return the slots after a start up to an end, having seen that they are the same in both directions."""
    found, back = [], []
    for slot in schedule.after(start):
        if slot.at > end:
            break
        found.append(slot)
    for slot in schedule.until(end):
        if slot.at <= start:
            break
        back.append(slot)
    assert back == found[::-1]
    return found


def expressions() -> st.SearchStrategy[str]:
    parts = (st.sampled_from(MINUTES), st.sampled_from(HOURS), st.sampled_from(DAYS))
    return st.tuples(*parts).map(" ".join)


@st.composite
def schedules(draw: st.DrawFn, zones: st.SearchStrategy[ZoneInfo] = st.sampled_from(ZONES).map(zone)) -> CronSlots:  # noqa: B008
    nonexistent, ambiguous = draw(st.sampled_from(NONEXISTENT)), draw(st.sampled_from(AMBIGUOUS))
    return CronSlots(Cron.parse(draw(expressions())), draw(zones), nonexistent, ambiguous)


def invented(changes: list[tuple[datetime, int]], first: int) -> ZoneInfo:
    """Return a zone that has an offset in seconds, and from each of these instants on another one."""
    times = [int(at.timestamp()) for at, _ in changes]
    offsets = [first, *(offset for _, offset in changes)]
    data = b"TZif\0" + b"\0" * 15 + struct.pack(">6l", 0, 0, 0, len(times), len(offsets), 4)
    data += struct.pack(f">{len(times)}l", *times) + bytes(range(1, len(offsets)))
    data += b"".join(struct.pack(">lbb", offset, 0, 0) for offset in offsets) + b"XXX\0"
    return ZoneInfo.from_file(BytesIO(data), "Invented")


@st.composite
def inventions(draw: st.DrawFn, start: datetime, least: timedelta, unit: int) -> ZoneInfo:
    """A zone that changes its clock at times of its own choice, not closer than `least`, by multiples of `unit` seconds."""
    offsets = st.integers(-14 * 3600 // unit, 14 * 3600 // unit).map(lambda number: number * unit)
    at, changes = start, []
    for _ in range(draw(st.integers(1, 3))):
        at += least + timedelta(seconds=unit) * draw(st.integers(0, 3 * 3600 // unit))
        changes.append((at, draw(offsets)))
    return invented(changes, draw(offsets))
