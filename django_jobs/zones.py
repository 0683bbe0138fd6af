"""Time zones: refused clearly, fingerprinted, and when their clocks change."""

from __future__ import annotations

import hashlib
import os
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import islice
from zoneinfo import ZoneInfo

from django_jobs.exceptions import JobsError, shown

LONGEST = 255

# How far ahead a clock change is looked for, and in which steps: no zone went forth and back within a day.
_HORIZON = timedelta(days=3 * 366)
_STEP = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_NONE = timedelta(0)


class BadZone(JobsError, ValueError):
    """A time zone that is not known or whose data cannot be read."""

    def __init__(self, key: object) -> None:
        super().__init__(
            f"Time zone {shown(key)} is not known here; give a name of the IANA database, such as 'Europe/Berlin' or 'UTC'."
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a zone's offset from UTC."""

    at: datetime
    """The first instant of the new offset, in UTC."""
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        """Whether the clock jumps forward, so that readings are left out; else some come twice."""
        return self.after > self.before


def zone(key: object) -> ZoneInfo:
    """Return the time zone of this name, or raise `BadZone`. Names are case-sensitive."""
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST:
        raise BadZone(key)
    try:
        return ZoneInfo(key)
    except Exception:
        # Which one depends on the version of Python and on what is in the way: a directory, no permission, no zone data.
        raise BadZone(key) from None


@lru_cache(maxsize=1024)
def data_of(key: str) -> str:
    """Return a fingerprint, 16 hexadecimal digits, of the data that this process has of a zone; raise `BadZone`.

    Equal data, equal fingerprint: hosts whose fingerprints differ may disagree on when the clocks change. Kept for the
    life of the process, as the zones themselves are; `data_of.cache_clear()` goes with `ZoneInfo.clear_cache()`.
    """
    zone(key)
    try:
        return hashlib.sha256(_bytes_of(key)).hexdigest()[:16]
    except (OSError, ImportError):
        raise BadZone(key) from None


def _bytes_of(key: str) -> bytes:
    for root in zoneinfo.TZPATH:
        path = os.path.join(root, key)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()


def changes(zone: ZoneInfo, after: datetime, count: int) -> list[Change]:
    """Return the next `count` changes of a zone's offset strictly after an aware instant, of the next three years."""
    return list(islice(_changes(zone, after.astimezone(UTC)), count))


def offset_of(zone: ZoneInfo, reading: datetime) -> timedelta:
    """Return the offset of a zone at a naive reading of its clock, whose `fold` decides as PEP 495 says."""
    return zone.utcoffset(reading) or _NONE


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """Return the offset of a zone at an aware instant; where it has no reading, that of the calendar's end."""
    try:
        local = instant.astimezone(zone)
    except OverflowError:
        local = datetime.min if instant.year == MINYEAR else datetime.max
    return offset_of(zone, local)


def shifted(moment: datetime, by: timedelta) -> datetime:
    """Return a datetime moved, but not past the ends of the calendar."""
    try:
        return moment + by
    except OverflowError:
        return (datetime.max if by > _NONE else datetime.min).replace(tzinfo=moment.tzinfo)


def _changes(zone: ZoneInfo, start: datetime) -> Iterator[Change]:
    end = shifted(start, _HORIZON)
    low, offset = start, offset_at(zone, start)
    while low < end:
        high = min(shifted(low, _STEP), end)
        if offset_at(zone, high) == offset:
            low = high
            continue
        low = _first(zone, low.replace(microsecond=0), high, offset)
        change = Change(low, offset, offset_at(zone, low))
        offset = change.after
        yield change


def _first(zone: ZoneInfo, low: datetime, high: datetime, offset: timedelta) -> datetime:
    """Return the first whole second after `low` that has not the offset; `low` has it and `high` has not."""
    seconds = -((low - high) // _SECOND)
    held, changed = 0, seconds
    while changed - held > 1:
        middle = (held + changed) // 2
        if offset_at(zone, low + middle * _SECOND) == offset:
            held = middle
        else:
            changed = middle
    return low + changed * _SECOND
