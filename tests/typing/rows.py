"""What mypy says of the columns of rows, with the plugin of django-stubs; other type checkers know nothing of them."""

from __future__ import annotations

from typing import assert_type

from django_jobs.models import Job


def columns(stored: Job) -> None:
    assert_type(stored.priority, int)
    assert_type(stored.idempotency_key, str | None)
