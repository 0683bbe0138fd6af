from __future__ import annotations

from typing import Any

from django_jobs.engines.base import Engine


def rows(engine: Engine, question: str, given: Any = ()) -> list[tuple[Any, ...]]:
    """Return what a question that no model has the words for brings."""
    with engine.connection.cursor() as cursor:
        cursor.execute(question, given)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
