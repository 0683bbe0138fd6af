from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobs.engines.base import Engine
from django_jobs.testing import reset_clock
from django_jobs.testing.fixtures import jobs  # noqa: F401 (the fixture)
from tests.testing.common import alone, committed


@pytest.fixture(
    params=[pytest.param(False, marks=alone, id="within"), pytest.param(True, marks=committed, id="committed")]
)
def both(request: pytest.FixtureRequest, engine: Engine) -> Iterator[bool]:
    """Run the test within the transaction of a TestCase, and without one, of which it tells."""
    yield request.param
    if request.param:
        reset_clock()
