"""Jobs and words that the tests of enqueueing share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_jobs import Context, JobsError, job
from django_jobs.models import Job
from tests.app.jobs import nothing

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@job
def take(value: Any = None, *rest: Any, option: Any = None, **others: Any) -> None: ...


@job
def strict(first: int, /, second: int, *, third: int = 3) -> None: ...


@job(takes_context=True)  # type: ignore[arg-type]
def with_context(context: Context, number: int = 0, **others: Any) -> None: ...


@job(queue="mail", priority=7, max_attempts=3, timeout=30)
def with_options() -> None: ...


@job(tags=["mail", "größe 1", "mail"])
def tagged() -> None: ...


@job(timeout=None)
def endless() -> None: ...


keyed = take.using(idempotency_key="k")
nothing_keyed = nothing.using(idempotency_key="k")


@contextmanager
def refused(engine: Engine, error: type[JobsError], said: str) -> Iterator[None]:
    """Expect an error that says this, nothing written, and a transaction that goes on."""
    with transaction.atomic(using=engine.alias):
        before = nothing.enqueue(1)
        with pytest.raises(error) as caught:
            yield
        after = nothing.enqueue(2)
    assert str(caught.value) == said
    assert jobs(engine) == [before, after]


def jobs(engine: Engine) -> list[Job]:
    return list(Job.objects.using(engine.alias).order_by("id"))


def stored(made: Job) -> dict[str, Any]:
    """Return a job's row without the columns that differ from job to job."""
    row = Job.objects.using(made._state.db).filter(pk=made.pk).values().get()
    return {name: value for name, value in row.items() if name not in ("id", "created_at", "run_at")}


def said_of(place: str, what: str) -> str:
    return f"tests.enqueues.take: {place} {'is ' if what.startswith('a ') else ''}{what}."


def nest(depth: int, inner: Any = None) -> Any:
    for level in range(depth):
        inner = [inner] if level % 2 else {"k": inner}
    return inner


def doubled(times: int, inner: Any = None) -> list[Any]:
    """Return a list of few lists whose JSON has 2 to the power of `times` values."""
    found = [inner]
    for _ in range(times):
        found = [found, found]
    return found
