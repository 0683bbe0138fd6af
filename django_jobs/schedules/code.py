"""The schedules that `@schedule` found in the code. Whether their values can be used is checked when models are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_jobs.exceptions import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSchedule:
    """What `@schedule` was told; `values` are fields of Schedule."""

    name: str
    type: str
    values: dict[str, Any]
    place: str
    of_task: bool = False


_schedules: dict[str, CodeSchedule] = {}
_clashes: list[tuple[CodeSchedule, CodeSchedule]] = []


def register(found: CodeSchedule) -> None:
    """Make a schedule known. Another under a name is kept for the system check; the first one stays."""
    # Whatever was given as a name, it is the system check that refuses it.
    key = found.name if isinstance(found.name, str) else shown(found.name)
    known = _schedules.setdefault(key, found)
    if known is not found and known != found:
        _clashes.append((known, found))


def find(name: str) -> CodeSchedule | None:
    return _schedules.get(name)


def schedules() -> list[CodeSchedule]:
    return [_schedules[key] for key in sorted(_schedules)]


def clashes() -> list[tuple[CodeSchedule, CodeSchedule]]:
    return list(_clashes)
