"""Schedules of the code, for tests: declared as a module declares them, and forgotten afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_jobs import schedule
from django_jobs.decorators import JobFunction
from django_jobs.schedules import code
from tests.app.jobs import nothing


@contextmanager
def release(**schedules: dict[str, Any]) -> Iterator[None]:
    """Have the code say these schedules and no other, as a release of it does: options of @schedule by name."""
    before = (code._schedules, code._clashes)
    code._schedules, code._clashes = {}, []
    try:
        for name, options in schedules.items():
            declare(name, **options)
        yield
    finally:
        code._schedules, code._clashes = before


def declare(name: str | None, expression: Any = "", of: JobFunction[..., ..., Any] = nothing, **options: Any) -> None:
    schedule(expression, name=name, **options)(of)
