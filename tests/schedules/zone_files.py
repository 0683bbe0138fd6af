"""Zone data as different hosts may have it: small files in the format of the IANA database, written here."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django_jobs.zones import forget

ZONE = "Test/Zone"


def tzif(rule: str) -> bytes:
    """Return a file of version 2 that has no changes of its own, but a POSIX rule for all times, such as EST5."""
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    block = b"TZif2" + bytes(15) + counts + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    return block * 2 + b"\n" + rule.encode() + b"\n"


class Hosts:
    """Hosts by name, each with a rule for the zone; this process is one of them at a time."""

    def __init__(self, directory: Path, rules: Mapping[str, str]) -> None:
        self._directory = directory
        for name, rule in rules.items():
            path = directory / name / ZONE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tzif(rule))

    def be(self, name: str) -> None:
        zoneinfo.reset_tzpath(to=[str(self._directory / name)])
        forget()


@contextmanager
def hosts(directory: Path, **rules: str) -> Iterator[Hosts]:
    before = zoneinfo.TZPATH
    try:
        yield Hosts(directory, rules)
    finally:
        zoneinfo.reset_tzpath(to=before)
        forget()
