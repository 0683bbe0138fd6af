"""What each page asks the database: how many statements, the longest of them, and on request how each was run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse

QUERIES, LONGEST, EXPLAIN = "X-Queries", "X-Longest", "X-Explain"


class Watched:
    """Tells of each answer, in its headers, the number of statements and the milliseconds of the longest.

    A request with the header X-Explain is answered with the statements instead of the page: their text, milliseconds, and
    what EXPLAIN ANALYZE says each part of them read.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        seen: list[dict[str, Any]] = []
        explains = EXPLAIN in request.headers

        def watch(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
            line: dict[str, Any] = {"sql": statement}
            if explains and statement.lstrip()[:6].upper() in ("SELECT", "WITH S"):
                line["scans"] = list(_scans(statement, parameters, context))
            began = time.perf_counter()
            try:
                return execute(statement, parameters, many, context)
            finally:
                seen.append({**line, "ms": 1000 * (time.perf_counter() - began)})

        with connection.execute_wrapper(watch):
            answer = self.get_response(request)
        if explains:
            return JsonResponse({"status": answer.status_code, "statements": seen})
        answer[QUERIES] = str(len(seen))
        answer[LONGEST] = f"{max((line['ms'] for line in seen), default=0.0):.1f}"
        return answer


def _scans(statement: str, parameters: Any, context: Any) -> Iterator[dict[str, Any]]:
    """Run a statement under EXPLAIN ANALYZE; return each scan of a table of ours, with the rows that it read."""
    cursor = context["cursor"].cursor
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    (found,) = cursor.fetchone()
    (plan,) = json.loads(found) if isinstance(found, str) else found
    for node in _nodes(plan["Plan"]):
        relation = str(node.get("Relation Name", ""))
        if relation.startswith("django_jobs_"):
            passed = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
            rows = sum(node.get(name, 0) for name in passed) * node.get("Actual Loops", 1)
            yield {"how": node["Node Type"], "table": relation, "by": node.get("Index Name", ""), "rows": int(rows)}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
