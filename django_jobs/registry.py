"""The functions that may be run. Only what is registered here is ever called; nothing from a row is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django_jobs.backoff import Backoff
from django_jobs.shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """What `@job` was told about a function. `timeout` and delays are seconds; `None` as timeout means no deadline."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    takes_context: bool
    queue: str
    priority: int
    max_attempts: int | None
    backoff: Backoff | None
    timeout: float | None
    default_timeout: bool
    retry_on: tuple[type[BaseException], ...] | None
    fail_on: tuple[type[BaseException], ...]
    durable: bool
    atomic: bool
    other_databases: bool
    tags: tuple[str, ...]
    # What each of its jobs carries in `meta`, and who is told how a run of one ended before that is stored.
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ended: Callable[..., None] | None = None
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", Shape.of(self.signature, self.takes_context))

    @property
    def place(self) -> str:
        return place_of(self.function)


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function stands; two of one name in a module differ by the line."""
    code = getattr(inspect.unwrap(function), "__code__", function.__code__)
    return f"{function.__module__}.{function.__qualname__} (line {code.co_firstlineno})"


_types: dict[str, JobType] = {}
_clashes: list[tuple[JobType, JobType]] = []


def register(job_type: JobType) -> None:
    """Make a type known. A second function under a name is kept for the system check; the first one stays."""
    known = _types.get(job_type.name)
    if known is not None and known.place != job_type.place:
        _clashes.append((known, job_type))
        return
    _types[job_type.name] = job_type


def find(name: str) -> JobType | None:
    return _types.get(name)


# Of copies: a module that is imported meanwhile, as by a view or another thread, registers what it has.


def names() -> list[str]:
    return sorted(_types.copy())


def queues() -> set[str]:
    return {job_type.queue for job_type in _types.copy().values()}


def clashes() -> list[tuple[JobType, JobType]]:
    return list(_clashes)
