"""The tasks that our backend makes: those of the framework, which may have the options of a job as well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from django_jobs.backoff import Backoff
from django_jobs.checked import reject_unknown
from django_jobs.options import UNSET, _Unset
from django_jobs.tasks.api import Task
from django_jobs.tasks.options import OF_TYPE, OWN, USING


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTask(Task):  # type: ignore[type-arg]
    """A task with options of a job: `@task(max_attempts=3)` on Django 6.1, and `.using(idempotency_key=...)`."""

    max_attempts: int | None = None
    timeout: float | timedelta | _Unset | None = UNSET
    backoff: Backoff | None = None
    retry_on: Iterable[type[BaseException]] | None = None
    fail_on: Iterable[type[BaseException]] | None = None
    atomic: bool | None = None
    durable: bool | None = None
    other_databases: bool | None = None
    tags: Iterable[str] | None = None
    idempotency_key: str | None = None
    unique: str | None = None
    expires: datetime | float | timedelta | None = None
    detached: bool | None = None

    def __new__(cls, **given: Any) -> JobsTask:
        known = cls.__dataclass_fields__.keys()
        unknown = {name: value for name, value in given.items() if name not in known}
        reject_unknown(unknown, known - {"func", "run_after"}, "@task")
        return object.__new__(cls)

    def using(self, **changes: Any) -> JobsTask:
        """Return a copy with other options: the framework's, and those of one enqueue of a job.

        As in the framework, None leaves an option as it was, but for `timeout`, where it means no deadline.
        """
        known = ("priority", "queue_name", "run_after", "backend", *USING)
        reject_unknown(changes, known, "using()")
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None or name == "timeout"}
        )


def own_options(task: Any) -> dict[str, Any]:
    """Return the options of a job that a task has; one that another backend made has none."""
    if not isinstance(task, JobsTask):
        return {}
    found = {name: getattr(task, name) for name in OWN}
    return {
        name: value
        for name, value in found.items()
        if (not isinstance(value, _Unset) if name == "timeout" else value is not None)
    }


def has_same_type_options(task: Any, other: Any) -> bool:
    """Tell whether two tasks say the same of how they are run; a copy by `using` does."""
    return all(getattr(task, name, None) is getattr(other, name, None) for name in OF_TYPE)


def copied(task: Any, **changes: Any) -> Any:
    """Return a task with changes that were true when it was stored: whether they may still be given is not asked."""
    made = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(made, field.name, changes.get(field.name, getattr(task, field.name)))
    return made
