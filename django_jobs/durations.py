"""Durations as people write them: 90, 90s, 30m, 12h, 7d."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
WORDS = "seconds, or a number with s, m, h or d, as 90, 30m or 7d"
_WRITTEN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd]?)", re.ASCII)


def seconds(text: str) -> float | None:
    """Return the seconds that a text says, None when it says none."""
    found = _WRITTEN.fullmatch(text)
    return float(found[1]) * UNITS[found[2]] if found else None


def written(length: timedelta) -> str:
    """Return a duration so that `seconds` reads it: a whole number of its largest unit, else seconds."""
    number, unit = _parts(length)
    return f"{number}{unit}"


def spelled(length: timedelta) -> str:
    """Return a duration exactly, in words: 45 s, 90 min, 12 h, 1 day."""
    number, unit = _parts(length)
    word = {"s": "s", "m": "min", "h": "h", "d": "day" if number == "1" else "days"}[unit]
    return f"{number} {word}"


def _parts(length: timedelta) -> tuple[str, str]:
    for unit in "dhm":
        size = timedelta(seconds=UNITS[unit])
        if length and not length % size:
            return str(length // size), unit
    text = f"{length / timedelta(seconds=1):.6f}".rstrip("0").rstrip(".")
    return text, "s"
