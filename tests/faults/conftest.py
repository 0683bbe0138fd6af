from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from example_project import postgres
from tests import router
from tests.faults.pooler import Pooler, find_pgbouncer
from tests.harness import Tree
from tests.processes.conftest import proxy, pytest_runtest_makereport, server  # noqa: F401
from tests.processes.outages import ALIAS, NetworkTree
from tests.proxy import Proxy

POOLED = "pooled"


@pytest.fixture
def trees(server: postgres.Server, tmp_path: Path) -> Iterator[Tree]:  # noqa: F811
    """Return a starter of trees on the test's own server; what they left has to be in order."""
    found = Tree(ALIAS, tmp_path)
    yield found
    found.end_all()


@pytest.fixture
def network(proxy: Proxy, tmp_path: Path) -> Iterator[Tree]:  # noqa: F811
    """Return a starter of trees which reach the test's own server through the proxy; the test reaches it directly."""
    (tmp_path / "network").mkdir()
    found = NetworkTree(ALIAS, tmp_path / "network", proxy.port)
    yield found
    found.end_all()


@pytest.fixture
def pooler(server: postgres.Server, tmp_path: Path) -> Iterator[Pooler]:  # noqa: F811
    """A PgBouncer in transaction mode in front of the test's own server, with few connections to it."""
    with Pooler(find_pgbouncer(), server) as found:
        yield found


@pytest.fixture
def pooled(pooler: Pooler, tmp_path: Path) -> Iterator[Tree]:
    """Return a starter of trees which reach the test's own server through the pooler; the test reaches it directly."""
    found = NetworkTree(ALIAS, tmp_path, pooler.port)
    yield found
    found.end_all()


@pytest.fixture
def behind(pooler: Pooler) -> Iterator[str]:
    """The alias by which this process reaches the jobs through the pooler."""
    connections.settings[POOLED] = {**connections[ALIAS].settings_dict, "PORT": str(pooler.port)}
    router.jobs_alias = POOLED
    yield POOLED
    router.jobs_alias = ALIAS
    connections[POOLED].close()
    del connections.settings[POOLED]
    del connections[POOLED]
