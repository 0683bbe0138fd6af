"""Questions that may not take long: whoever would wait for the database is told, and the database is let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import OperationalError, connections, transaction

from django_jobs.engines import jobs_alias
from django_jobs.exceptions import JobsError
from django_jobs.models.clock import database_now

SECONDS = 5.0
QUERY_CANCELED = "57014"
_TAKE = """
SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true),
       extract(epoch FROM statement_timestamp())
"""
_GIVE_BACK = "SELECT set_config('statement_timeout', %s, true)"


class TooSlow(JobsError):
    """A question of a page took longer than it may; the database has stopped working at it."""


@contextmanager
def bounded(alias: str | None = None, seconds: float = SECONDS) -> Iterator[datetime]:
    """Let no statement to a database, that of the jobs if none is named, take longer than so many seconds.

    It makes a transaction, or a savepoint in the caller's, and yields the database's time, in UTC. Raises TooSlow when a
    statement took longer; then nothing of what was done within is kept. On SQLite, where one process reads its own file,
    nothing is bounded. Can be used as a decorator.
    """
    alias = alias or jobs_alias()
    if connections[alias].vendor != "postgresql":
        yield database_now(alias)
        return
    is_outermost = not connections[alias].in_atomic_block
    try:
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(_TAKE, [str(max(1, round(seconds * 1000)))])
                before, _set, now = cursor.fetchone()
            yield datetime.fromtimestamp(float(now), UTC)
            if not is_outermost:  # the setting would last until the caller's own end
                with connections[alias].cursor() as cursor:
                    cursor.execute(_GIVE_BACK, [before])
    except OperationalError as error:
        if not is_too_slow(error):
            raise
        raise TooSlow(f"The database did not answer within {seconds:g} s.") from error


def is_too_slow(error: OperationalError) -> bool:
    """Tell whether a statement within `bounded` was ended because it took longer, which then raises TooSlow."""
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED
