"""`jobs check` as monitoring systems run it: a line on stdout, and an exit code that says how bad it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from django_jobs.conf import conf
from django_jobs.management import given, remedy
from django_jobs.monitoring.check import Thresholds, check
from django_jobs.monitoring.levels import Level, Measured, in_a_line, line, worst

# Option -> what it is, and how its value is read.
AGES = {"age": "for how long a due job waits", "unknown": "for how long jobs of types that nobody knows are parked"}
COUNTS = {
    "dead": "dead letters",
    "silent": "silent worker processes",
    "overdue": "schedules overdue",
    "broken": "schedules broken",
}
LARGEST = 10**9


def options(parser: CommandParser) -> CommandParser:
    add = parser.add_argument
    add("--queues", metavar="A,B", action=given.Once, help="only these, and the workers that serve them")
    for level in ("warning", "critical"):
        for name, what in {**AGES, "clock": "how far apart the clocks are"}.items():
            add(f"--{name}-{level}", metavar="TIME", action=given.Once, help=f"from when on it is bad: {what}")
        for name, what in COUNTS.items():
            add(f"--{name}-{level}", metavar="N", action=given.Once, help=f"more than so many {what}")
        add(f"--workers-{level}", metavar="N", action=given.Once, help="fewer than so many live worker processes")
    tell_of_wrong_options(parser)
    return parser


def tell_of_wrong_options(parser: CommandParser) -> None:
    """Have options that cannot be used end as unknown: argparse would end with 2, which is CRITICAL to whoever reads it."""
    parser.error = _wrong_options  # type: ignore[method-assign]


def run(options: dict[str, Any], write: Callable[[str], object]) -> int:
    """Check, write the line, and return the exit code."""
    found = check(_thresholds(options), given.queues(options["queues"]))
    level, said = worst(found.found), line(found.found, found.well)
    if options["json"]:
        data = {"level": level.name, "code": int(level), "line": said, "measured": [_row(item) for item in found.found]}
        said = json.dumps(data, ensure_ascii=False)
    write(said)
    return int(level)


def unknown(error: Exception, as_json: bool = False) -> str:
    """Return the line that says why nothing could be checked."""
    said = remedy.one_line(error) if isinstance(error, DatabaseError | InterfaceError) else str(error)
    text = f"{Level.UNKNOWN.name} - {in_a_line(said) or type(error).__name__}"
    if not as_json:
        return text
    data = {"level": Level.UNKNOWN.name, "code": int(Level.UNKNOWN), "line": text, "measured": []}
    return json.dumps(data, ensure_ascii=False)


def _wrong_options(message: str) -> NoReturn:
    print(unknown(CommandError(message)))
    raise SystemExit(int(Level.UNKNOWN))


def _row(item: Measured) -> dict[str, Any]:
    return {
        "name": item.name,
        "level": item.level.name,
        "value": round(item.value, 3),
        "unit": item.unit or None,
        "warning": item.warning,
        "critical": item.critical,
        "text": item.text if item.level else "",
    }


def _thresholds(options: dict[str, Any]) -> Thresholds:
    changes: dict[str, float] = {}
    for level in ("warning", "critical"):
        for name in (*AGES, "clock", *COUNTS, "workers"):
            key, value = f"{name}_{level}", options[f"{name}_{level}"]
            if value is not None:
                label = f"--{name}-{level}"
                changes[key] = (
                    given.number(value, label, LARGEST) if name in (*COUNTS, "workers") else _age(value, label)
                )
    return Thresholds.of(conf()).using(**changes)


def _age(value: str, name: str) -> float:
    return given.duration(value, name) or 0.0
