"""A time zone whose clock is put forward at an instant of our choice: the clock of no process is touched."""

from __future__ import annotations

import os
import struct
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

NAME = "Rehearsal/Town"
# What the zone's clock shows just before: the hour from there on is left out.
HOUR_LEFT_OUT = 2
_FORWARD = 3600


def make(directory: Path, at: datetime) -> None:
    """Write the zone's data, and have this process and those it starts know it."""
    path = directory / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(_data(at))
    places = [str(directory), *zoneinfo.TZPATH]
    os.environ["PYTHONTZPATH"] = os.pathsep.join(places)
    zoneinfo.reset_tzpath(places)


def _data(at: datetime) -> bytes:
    """Return zone data of version 2 (RFC 8536) with one change, an hour forward, and no rule for those after it."""
    moment = at.astimezone(UTC)
    shown = moment.hour * 3600 + moment.minute * 60 + moment.second
    before = HOUR_LEFT_OUT * 3600 - shown
    # Between half a day behind UTC and half a day before it.
    before = (before + 12 * 3600) % (24 * 3600) - 12 * 3600
    types = struct.pack(">lbB", before, 0, 0) + struct.pack(">lbB", before + _FORWARD, 1, 4)
    counts = struct.pack(">6l", 0, 0, 0, 1, 2, 8)
    magic = b"TZif2" + bytes(15)
    first = magic + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbB", 0, 0, 0) + b"UTC\0"
    change = struct.pack(">q", int(moment.timestamp())) + b"\x01"
    return first + magic + counts + change + types + b"BEF\0AFT\0" + b"\n\n"
