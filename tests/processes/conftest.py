from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import environ
import pytest
from django.core.management import call_command
from django.db import connections

from example_project import postgres
from tests import router
from tests.harness import Tree
from tests.processes.common import assert_in_order
from tests.processes.outages import ALIAS, NetworkTree
from tests.proxy import Proxy


@pytest.fixture
def tree(tree: Tree) -> Iterator[Tree]:
    """Return a starter of trees, and look at the end whether what they left is in order."""
    yield tree
    assert_in_order(tree)


@pytest.fixture
def server(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[postgres.Server]:
    """A server of this test's own, with the tables, to be treated badly; the jobs are there."""
    if postgres.find_binaries() is None:
        pytest.skip("neither an installed PostgreSQL nor the wheel")
    with postgres.temporary(settings=getattr(request, "param", None)) as found, django_db_blocker.unblock():
        url = dict(environ.Env.db_url_config(found.url))
        connections.settings[ALIAS] = {**connections.settings["default"], **url}
        router.jobs_alias = ALIAS
        try:
            call_command("migrate", database=ALIAS, run_syncdb=True, verbosity=0)
            yield found
        finally:
            router.jobs_alias = "default"
            connections[ALIAS].close()
            del connections.settings[ALIAS]
            del connections[ALIAS]


@pytest.fixture
def trees(server: postgres.Server, tmp_path: Path) -> Iterator[Tree]:
    """Return a starter of trees on the test's own server."""
    found = Tree(ALIAS, tmp_path)
    yield found
    found.end_all()


@pytest.fixture
def proxy(server: postgres.Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as found:
        yield found


@pytest.fixture
def network(proxy: Proxy, tmp_path: Path) -> Iterator[Tree]:
    """Return a starter of trees which reach the test's own server through the proxy; the test reaches it directly."""
    found = NetworkTree(ALIAS, tmp_path, proxy.port)
    yield found
    found.end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what its trees logged."""
    report = yield
    found: dict[str, Any] = getattr(item, "funcargs", {})
    trees = [found[name] for name in ("tree", "trees", "network", "pooled") if name in found]
    for tree in trees if report.failed else []:
        for log in sorted(tree.directory.glob("workers-*.log")):
            report.sections.append((log.name, log.read_text(errors="replace")))
    return report
