"""Keeps the test kit off the jobs of a site: it works in tests, on a database of theirs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.db import connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

from django_jobs import test_environment
from django_jobs.exceptions import JobsError
from django_jobs.testing.transactions import in_test_case


def refuse_outside_of_tests(alias: str, name: str) -> None:
    """Raise JobsError unless tests are run, and either a TestCase is or the jobs' database is one for tests."""
    refuse_without_tests(name)
    connection: Any = connections[alias]
    if not in_test_case(connection) and not _is_for_tests(connection):
        raise JobsError(
            f"{name} would act on the database {str(connection.settings_dict['NAME'])!r}, which is none of tests. Use it in a "
            f"TestCase of django.test that has {alias!r} in its `databases`, or with pytest-django's `db`. If tests are to have "
            f"that database, name it in DATABASES[{alias!r}]['TEST']['NAME']."
        )


def refuse_without_tests(name: str) -> None:
    if not test_environment.is_set_up():
        raise JobsError(
            f"{name} is for tests, and this process runs none: it would act on the jobs of the site. Run it by "
            "`manage.py test` or pytest with pytest-django. To run what is due: `manage.py runworkers --burst`."
        )


def _is_for_tests(connection: Any) -> bool:
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        return True
    asked = [str(given) for each in connections.all() if (given := each.settings_dict["TEST"]["NAME"])]
    return name.startswith(TEST_DATABASE_PREFIX) or any(_is_same(name, each) for each in asked)


def _is_same(name: str, asked: str) -> bool:
    """Tell whether a database is the one asked for, or its copy for one of the processes of `--parallel`."""
    ending = Path(asked).suffix
    return bool(re.fullmatch(rf"{re.escape(asked.removesuffix(ending))}(_\d+)?{re.escape(ending)}", name))
