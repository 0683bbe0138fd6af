"""Django's own connection pool: sessions of the site come from it, and those of workers do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from tests.app.jobs import nothing
from tests.harness import Tree, wait_for
from tests.processes.common import on_postgresql, with_processes
from tests.threads import together

pytest.importorskip("psycopg_pool", reason="the extra test brings it")
pytestmark = [*with_processes, on_postgresql]
SIZE = 3


@pytest.fixture
def pool(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have all connections of this process to the jobs' database come from a pool, as the settings of a project ask."""
    connection: Any = connections[tree.alias]
    connection.close()
    given = connection.settings_dict
    with monkeypatch.context() as patch:
        patch.setitem(given, "OPTIONS", {**given["OPTIONS"], "pool": {"min_size": 1, "max_size": SIZE}})
        yield connection.pool
        connection.close()
        connection.close_pool()


def test_a_site_with_djangos_pool_enqueues_by_it_and_workers_hold_their_own_connections(tree: Tree, pool: Any) -> None:
    def requests() -> list[int]:
        made = []
        for number in range(10):  # more than it takes until the statement is prepared
            with transaction.atomic(using=tree.alias):
                made.append(nothing.enqueue(number).pk)
            try:
                with transaction.atomic(using=tree.alias):
                    nothing.enqueue(-1)
                    raise LookupError
            except LookupError:
                connections[tree.alias].close()  # as at the end of a request: back to the pool
        return made

    made = sorted(number for numbers in together([requests] * SIZE) for number in numbers)
    assert [job.pk for job in tree.jobs()] == made
    assert pool.get_stats()["connections_num"] <= SIZE
    workers = tree.start("--processes", "1", "--threads", "5")  # more than the pool would give
    wait_for(lambda: tree.count(status="done") == len(made))
    assert workers.stop() == 0, workers.log
