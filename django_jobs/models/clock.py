from __future__ import annotations

from typing import Any

from django.db.models import Func, TextField
from django.db.models.functions import Now


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
