from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.archive.common import partitions
from tests.engines.common import sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@pytest.fixture(autouse=True)
def no_partitions_left(engine: Engine) -> Iterator[None]:
    yield
    if engine.name == "postgresql":
        for name in partitions(engine):
            sql(engine, f"DROP TABLE {name}")
