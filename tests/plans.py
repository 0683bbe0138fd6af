"""What PostgreSQL says of how it runs a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


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
