"""Time zones: refused clearly, fingerprinted, and when their clocks change."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MINYEAR, UTC, datetime, timedelta
from functools import cache
from importlib import resources
from io import BytesIO
from itertools import islice
from zoneinfo import ZoneInfo

from django_jobs.exceptions import JobsError, shown
from django_jobs.texts import text as _

LONGEST = 100
# What lies beside the zones: the host's own, whose name says nothing elsewhere, and those that count leap seconds.
_NO_ZONES = re.compile(r"(localtime|posixrules)$|(right|posix)/")
# A file of zone data that says UTC, for hosts that have none.
_UTC = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"

# How far ahead a clock change is looked for, and in which steps: no zone went forth and back within a day.
_HORIZON = timedelta(days=3 * 366)
_STEP = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_NONE = timedelta(0)


class BadZone(JobsError, ValueError):
    """A time zone that is not known or whose data cannot be read."""

    def __init__(self, key: object) -> None:
        remedy = _("give a name of the IANA database, such as 'Europe/Berlin' or 'UTC'")
        if not _are_there_any():
            remedy = _("there is no time zone data but UTC: install the system's, or the package tzdata")
        super().__init__(_("Time zone %(value)s is not known here; %(remedy)s.", value=shown(key), remedy=remedy))


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
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST or _NO_ZONES.match(key):
        raise BadZone(key)
    return _loaded(key)[0]


@cache
def _loaded(key: str) -> tuple[ZoneInfo, str]:
    """Return a zone and the fingerprint of what it was made of: of zones that Python caches it forgets some."""
    try:
        if key == "UTC" and not _are_there_any():
            return ZoneInfo.from_file(BytesIO(_UTC), key), ""
        ZoneInfo(key)
        data = _bytes_of(key)
        return ZoneInfo.from_file(BytesIO(data), key), hashlib.sha256(data).hexdigest()[:16]
    except Exception:
        # Which one depends on the version of Python and on what is in the way: a directory, no permission, no zone data.
        raise BadZone(key) from None


@cache
def _are_there_any() -> bool:
    return bool(zoneinfo.available_timezones())


def forget() -> None:
    """Read the data of zones anew when they are asked for next."""
    _are_there_any.cache_clear()
    _loaded.cache_clear()
    ZoneInfo.clear_cache()


def data_of(key: str) -> str:
    """Return a fingerprint, 16 hexadecimal digits, of the data that this process has of a zone; raise `BadZone`.

    Equal data, equal fingerprint: hosts whose fingerprints differ may disagree on when the clocks change.
    """
    zone(key)
    return _loaded(key)[1]


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
