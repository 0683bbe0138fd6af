"""`jobs doctor`: everything is looked at, and what is wrong is said with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.db import DatabaseError, InterfaceError

from django_jobs.doctor import lately, schedules, server, tables, waiting, workers
from django_jobs.doctor.findings import Finding
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.engines.bounded import TooSlow, bounded

Check = Callable[[Engine], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    *server.CHECKS,
    *tables.CHECKS,
    *workers.CHECKS,
    *waiting.CHECKS,
    *lately.CHECKS,
    *schedules.CHECKS,
)


def examine() -> list[Finding]:
    """Return what is wrong, gravest first as far as one can say; raise what the database does when it cannot be asked."""
    found = engine(jobs_alias())
    found.connection.ensure_connection()
    missing = list(server.unapplied(found))
    if missing:  # all else asks these tables
        return missing
    return [finding for check in CHECKS for finding in _made(check, found)]


def _made(check: Check, engine: Engine) -> list[Finding]:
    """Make a check by itself: one that fails keeps no other from its word."""
    try:
        with bounded(engine.alias):
            return list(check(engine))
    except (DatabaseError, InterfaceError, TooSlow) as error:
        said = " ".join(str(error).split())
        return [
            Finding(
                "could_not_look",
                f"{check.__module__.rpartition('.')[2]}.{check.__name__} could not be looked at: {said}",
                "See the database's log.",
            )
        ]
