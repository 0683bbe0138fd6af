from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.harness import Tree
from tests.processes.common import assert_in_order


@pytest.fixture
def tree(tree: Tree) -> Iterator[Tree]:
    """Return a starter of trees, and look at the end whether what they left is in order."""
    yield tree
    assert_in_order(tree)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what its trees logged."""
    report = yield
    tree = getattr(item, "funcargs", {}).get("tree")
    if report.failed and tree is not None:
        for log in sorted(tree.directory.glob("workers-*.log")):
            report.sections.append((log.name, log.read_text(errors="replace")))
    return report
