from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_jobs.engines.base import Engine
from django_jobs.testing import reset_clock
from django_jobs.testing.fixtures import jobs  # noqa: F401 (the fixture)
from tests.testing.common import alone, committed


@pytest.fixture(scope="module", autouse=True)
def own_functions(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Leave no SQLite connection to other tests whose functions of time were replaced: these are none of a statement's."""
    yield
    with django_db_blocker.unblock():
        connections["lite"].close()


@pytest.fixture(
    params=[pytest.param(False, marks=alone, id="within"), pytest.param(True, marks=committed, id="committed")]
)
def both(request: pytest.FixtureRequest, engine: Engine) -> Iterator[bool]:
    """Run the test within the transaction of a TestCase, and without one, of which it tells."""
    yield request.param
    if request.param:
        reset_clock()
