from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.models import Func, TextField
from django.db.models.functions import Now
from django.utils import timezone

# What the expression `Now` is on each database, for statements that are made without the ORM.
NOW = {"postgresql": "STATEMENT_TIMESTAMP()", "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')"}


class Clock(Now):
    """The database's time, to be stored: on SQLite, where times are compared as text, with as many digits as all others."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f000', 'NOW')"
        return self.as_sql(compiler, connection, template=template, **extra)


class ClockText(Func):
    """The database's time as the lines of a history have it: in UTC, whatever the project's time zone."""

    output_field = TextField()

    def as_postgresql(self, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
        return """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')""", ()

    def as_sqlite(self, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
        return "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')", ()


def database_now(alias: str) -> datetime:
    """Return the time by a database's clock, in UTC."""
    with connections[alias].cursor() as cursor:
        if connections[alias].vendor == "postgresql":
            cursor.execute(
                """SELECT to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
            )
        else:
            cursor.execute("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
        return datetime.fromisoformat(cursor.fetchone()[0])


def for_row(moment: datetime, alias: str) -> datetime:
    """Return an aware time as a column takes it: without USE_TZ, times in SQLite are UTC without saying so."""
    if settings.USE_TZ or connections[alias].vendor != "sqlite":
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def from_row(value: datetime, alias: str) -> datetime:
    """Return in UTC what a column gave: without USE_TZ, PostgreSQL gives times of the project's time zone."""
    if timezone.is_aware(value):
        return value.astimezone(UTC)
    if connections[alias].vendor == "sqlite":
        return value.replace(tzinfo=UTC)
    return timezone.make_aware(value, timezone.get_default_timezone()).astimezone(UTC)
