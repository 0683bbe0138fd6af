from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.archive.common import partitions
from tests.engines.common import sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@pytest.fixture(autouse=True)
def own_partitions(engine: Engine) -> Iterator[None]:
    """Have no partition when a test begins, whatever made one (a worker of another test does), and none after it."""
    drop_partitions(engine)
    yield
    drop_partitions(engine)


def drop_partitions(engine: Engine) -> None:
    if engine.name == "postgresql":
        for name in partitions(engine):
            sql(engine, f"DROP TABLE {name}")
