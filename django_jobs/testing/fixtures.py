"""The fixture of the test kit for pytest with pytest-django: `pytest_plugins = ["django_jobs.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
from django.db import connections

from django_jobs import testing
from django_jobs.engines import jobs_alias


@pytest.fixture
def jobs(db: None) -> Iterator[ModuleType]:
    """Give the functions of the test kit, and a database; the clock is set back after the test."""
    yield testing
    if not connections[jobs_alias()].in_atomic_block:
        testing.reset_clock()
