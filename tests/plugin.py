"""Finds or starts the databases of the test session, before Django reads its settings (`-p tests.plugin`).

PostgreSQL: DATABASE_URL if given, else a server of the session's own from installed binaries or those of a wheel, of
which TEST_POSTGRESQL ("system" or "wheel") names the one to take.
SQLite: a file in a temporary directory. Both are used in every session: as "default" and as "lite".
"""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environ
import psycopg
import pytest

from example_project.postgres import PostgresError, find_binaries, temporary
from example_project.postgres_host import system_binaries, wheel_binaries

# What is to be stopped and removed at the end.
_ends: list[Callable[[], object]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    # The earliest hook: pytest-django sets Django up in a later one.
    mine = os.environ.get("PYTEST_XDIST_WORKER", "")
    if os.environ.get("DJANGO_JOBS_TEST_PROCESS") == mine:
        return
    # Each process of `pytest -n` has databases of its own: what is asked of a whole server is then the test's own doing.
    os.environ["DJANGO_JOBS_TEST_PROCESS"] = mine
    os.environ["DJANGO_JOBS_TEST_DATABASES"] = json.dumps({"default": _postgresql(), "lite": _sqlite()})


def pytest_unconfigure() -> None:
    _end()


@atexit.register
def _end() -> None:
    while _ends:
        _ends.pop()()


def _postgresql() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL")
    if url is None:
        try:
            # Without autovacuum: plans are tested with statistics of their own.
            server = temporary(bindir=_binaries(), settings={"autovacuum": "off"})
        except PostgresError as error:
            raise pytest.UsageError(f"The tests need PostgreSQL 15+ and could not start one: {error}") from error
        _ends.append(lambda: server.stop("immediate"))
        url = server.url
    config = dict(environ.Env.db_url_config(url))
    if "postgresql" not in str(config["ENGINE"]):
        raise pytest.UsageError(
            f"DATABASE_URL is {url!r}; the tests take a PostgreSQL there, or none to start their own."
        )
    return config


def _binaries() -> Path | None:
    finders = {"system": system_binaries, "wheel": wheel_binaries}
    given = os.environ.get("TEST_POSTGRESQL")
    if not given:
        return find_binaries()
    if given not in finders:
        raise pytest.UsageError(f"TEST_POSTGRESQL is {given!r}; give 'system' or 'wheel', or leave it out.")
    found = finders[given]()
    if found is None:
        raise pytest.UsageError(f"TEST_POSTGRESQL is {given!r}, and there is no PostgreSQL of that kind.")
    return found


def pytest_report_header() -> str:
    database = json.loads(os.environ["DJANGO_JOBS_TEST_DATABASES"])["default"]
    options = {"host": database["HOST"], "port": database["PORT"], "user": database["USER"]}
    with psycopg.connect(**options, password=database["PASSWORD"], dbname=database["NAME"]) as connection:
        version = connection.info.server_version
    return f"databases: PostgreSQL {version // 10000}.{version % 10000}, SQLite {sqlite3.sqlite_version}"


def _sqlite() -> dict[str, Any]:
    directory = tempfile.TemporaryDirectory(prefix="django_jobs-tests-")
    _ends.append(directory.cleanup)
    name = str(Path(directory.name) / "jobs.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "TEST": {"NAME": name},
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
