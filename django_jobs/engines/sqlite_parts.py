"""Pieces of SQL and of rows in which SQLite is its own."""

from __future__ import annotations

import json
from datetime import datetime

from django.utils import timezone

# The database's clock here is the host's: one host, one file. Six digits, as Django stores them: times compare as text.
NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')"
LATER = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now', printf('%%+.3f seconds', {}))"
# Seconds since 1970, in whole milliseconds as its clock has them.
EPOCH = "round((julianday({}) - 2440587.5) * 86400.0, 3)"
IN_FORCE = f"(until IS NULL OR until > {NOW})"
UNLESS_TAKEN = "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"


def stored(moment: datetime) -> str:
    # isoformat and not strftime, which writes the year 1 without its zeros.
    return moment.astimezone(timezone.get_fixed_timezone(0)).replace(tzinfo=None).isoformat(" ", "microseconds")


def served(queues: tuple[str, ...] | None) -> tuple[str, list[str]]:
    if queues is None:
        return "", []
    condition, parameters = one_of("queue", queues)
    return f"AND {condition}", parameters


def not_paused(kind: str) -> str:
    return f"{kind} NOT IN (SELECT name FROM django_jobs_pause WHERE kind = '{kind}' AND {IN_FORCE})"


def one_of(column: str, values: tuple[str, ...]) -> tuple[str, list[str]]:
    # As one JSON text: SQLite limits how many parameters a statement may have.
    return f"{column} IN (SELECT value FROM json_each(%s))", [json.dumps(values)]


def read(stored: datetime | None) -> datetime | None:
    # Django's converter for the column has made it a datetime, without its time zone.
    return None if stored is None else stored.replace(tzinfo=timezone.get_fixed_timezone(0))


def is_busy(error: Exception) -> bool:
    """Tell whether another connection writes: then the file is there and can be written, only not by us now."""
    name = getattr(error, "sqlite_errorname", None) or getattr(error.__cause__, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
