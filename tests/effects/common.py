from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from django_jobs import once
from django_jobs.context import Context, current
from django_jobs.engines.base import Engine
from django_jobs.models import Effect
from tests.app.models import Effect as Truth


def rows(engine: Engine) -> list[tuple[Any, ...]]:
    """Return of each record: kind, key, times asked, whether answered, result."""
    found = Effect.objects.using(engine.alias).order_by("kind", "key")
    return [(row.kind, row.key, row.asks, row.answered_at is not None, row.result) for row in found]


def truth(engine: Engine) -> list[str]:
    return list(Truth.objects.using(engine.alias).order_by("pk").values_list("key", flat=True))


def leave(engine: Engine, key: str) -> None:
    Truth.objects.using(engine.alias).create(key=key)


def effect_once(engine: Engine, key: str, result: Any = None) -> tuple[bool, Any]:
    """Have an effect in a transaction of its own; return whether this was the first time, and the result."""
    with transaction.atomic(using=engine.alias), once(key) as first:
        if first:
            leave(engine, key)
            first.result = result
    return bool(first), first.result


@contextmanager
def in_job(job_id: int) -> Iterator[None]:
    context = Context(
        job_id=job_id,
        attempt=1,
        run=1,
        idempotency_key=f"job:{job_id}",
        slot=None,
        stop_asked=lambda: False,
        report=lambda progress: None,
    )
    token = current.set(context)
    try:
        yield
    finally:
        current.reset(token)
