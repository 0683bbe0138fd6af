"""Finds or starts the databases of the test session, before Django reads its settings (`-p tests.plugin`).

PostgreSQL: DATABASE_URL if given, else a server of the session's own from installed binaries or those of a wheel.
SQLite: a file in a temporary directory. Both are used in every session: as "default" and as "lite".
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import environ
import pytest

from example_project.postgres import PostgresError, temporary


def pytest_addoption(parser: pytest.Parser) -> None:
    # The earliest hook: pytest-django sets Django up in a later one.
    if "DJANGO_JOBS_TEST_DATABASES" not in os.environ:
        os.environ["DJANGO_JOBS_TEST_DATABASES"] = json.dumps({"default": _postgresql(), "lite": _sqlite()})


def _postgresql() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL")
    if url is None:
        try:
            server = temporary(settings={"autovacuum": "off"})  # plans are tested with statistics of their own
        except PostgresError as error:
            raise pytest.UsageError(f"The tests need PostgreSQL 15+ and could not start one: {error}") from error
        atexit.register(server.stop, "immediate")
        url = server.url
    config = dict(environ.Env.db_url_config(url))
    if "postgresql" not in str(config["ENGINE"]):
        raise pytest.UsageError(
            f"DATABASE_URL is {url!r}; the tests take a PostgreSQL there, or none to start their own."
        )
    return config


def _sqlite() -> dict[str, Any]:
    directory = tempfile.TemporaryDirectory(prefix="django_jobs-tests-")
    atexit.register(directory.cleanup)
    name = str(Path(directory.name) / "jobs.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "TEST": {"NAME": name},
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
