"""What to do when the jobs' database refused a command, in a few words that fit what it said."""

from __future__ import annotations

from django.db import Error

from django_jobs.engines import jobs_alias
from django_jobs.router import migrate

# By PostgreSQL's SQLSTATE or its class, and by SQLite's name or the beginning of it.
_REMEDIES = (
    (("25006", "SQLITE_READONLY"), "it is read-only: is it a standby, or a file that may not be written?"),
    (("55P03", "57014", "40P01", "SQLITE_BUSY", "SQLITE_LOCKED"), "somebody holds it; try again when that is over."),
    (("42501", "SQLITE_PERM", "SQLITE_AUTH"), "the user that it is asked as has not the right to."),
    (("08", "57P", "SQLITE_CANTOPEN"), "is it there?"),
    (("53", "SQLITE_FULL", "SQLITE_IOERR"), "its disk or its connections are used up, or fail."),
)
_NO_TABLE = ("3F000", "42P01", "42703")
_OF_A_TABLE = ("no such table", "no such column")  # SQLite has one code for these and all else


def one_line(error: Error) -> str:
    """Return a database's error as one line with its remedy."""
    said = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    return f"The jobs' database refused ({said}); {_remedy(error, said)}"


def _remedy(error: Error, said: str) -> str:
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    if said.startswith(_OF_A_TABLE) or code in _NO_TABLE:
        return f"was `{migrate(jobs_alias())}` run?"
    if code is None:  # nobody answered who could have given one
        return "is it there, and are the settings for it right?"
    return next((remedy for codes, remedy in _REMEDIES if code.startswith(codes)), "see the database's log.")
