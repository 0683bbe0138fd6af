"""What PostgreSQL says of how it runs a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections


def explained(statement: str, parameters: Any, context: Any) -> list[dict[str, Any]]:
    """Run a statement under EXPLAIN ANALYZE, from an execute wrapper of Django's; return every node of its plan."""
    cursor = context["cursor"].cursor
    cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
    (found,) = cursor.fetchone()
    (plan,) = json.loads(found) if isinstance(found, str) else found
    return list(_nodes(plan["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


@contextmanager
def watched(alias: str) -> Iterator[list[dict[str, Any]]]:
    """Collect every node of the plan of every statement, each run under EXPLAIN ANALYZE before it is run."""
    nodes: list[dict[str, Any]] = []

    def explain(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        if not statement.startswith(("SAVEPOINT", "RELEASE")):
            nodes.extend(explained(statement, parameters, context))
        return execute(statement, parameters, many, context)

    with connections[alias].execute_wrapper(explain):
        yield nodes
