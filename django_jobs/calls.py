"""A call that was not made: what `enqueue_many` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, ParamSpec

from django_jobs.options import Enqueue
from django_jobs.registry import JobType

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[P]):
    """The arguments and options of one call of a job, made by `JobFunction.call`. Nothing is checked before it is enqueued."""

    job_type: JobType
    using: Enqueue
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __repr__(self) -> str:
        return f"<call of {self.job_type.name}>"
