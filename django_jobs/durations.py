"""Durations as people write them: 90, 90s, 30m, 12h, 7d."""

from __future__ import annotations

import re
from datetime import timedelta

from django_jobs.texts import Text, ngettext, number
from django_jobs.texts import text as _

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


def spelled(length: timedelta) -> Text:
    """Return a duration exactly, in words: 45 s, 90 min, 12 h, 1 day."""
    found, unit = _parts(length)
    if unit == "d":
        return ngettext("%(number)d day", "%(number)d days", int(found), number=int(found))
    value = number(float(found), len(found.partition(".")[2]))
    return {"s": _("%s s", value), "m": _("%s min", value), "h": _("%s h", value)}[unit]


def _parts(length: timedelta) -> tuple[str, str]:
    for unit in "dhm":
        size = timedelta(seconds=UNITS[unit])
        if length and not length % size:
            return str(length // size), unit
    text = f"{length / timedelta(seconds=1):.6f}".rstrip("0").rstrip(".")
    return text, "s"
