"""What the functions of the kit are given for a type of job, or for a job."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Protocol, TypeAlias

from django_jobs import registry
from django_jobs.decorators import JobFunction
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models import Job
from django_jobs.registry import JobType


class Task(Protocol):
    """As those of Django's Tasks are, whichever package they come from."""

    @property
    def module_path(self) -> str: ...


class TaskResult(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def task(self) -> Any: ...


Type: TypeAlias = JobFunction[..., ..., Any] | Task | str


def type_of(given: object, where: str) -> JobType:
    """Return the type of a function with @job, of a task, or by its name; `where` begins the message of an error."""
    if isinstance(given, JobFunction):
        return given.job_type
    path = getattr(given, "module_path", None)
    name = path if isinstance(path, str) else given
    if not isinstance(name, str):
        raise InvalidJobType(
            f"{where}: {shown(given)} is no type of job; give a function with @job, a task, or the name of a type, as "
            "'shop.jobs.send_receipt'."
        )
    found = registry.find(name)
    if found is not None:
        return found
    if path is not None:
        raise InvalidJob(
            f"{where}: the task {name} was defined for another backend than that of django_jobs, which cannot run it; have "
            "TASKS name django_jobs.tasks_backend.JobsBackend in tests too."
        )
    near = get_close_matches(name, registry.names(), 3) or registry.names()[:10]
    raise InvalidJob(
        f"{where}: {shown(name)} is no name of a type that is known here; there is {', '.join(near) or 'none'}. A type has the "
        "name of its module and function, unless @job has a `name`."
    )


def job_of(given: Job | TaskResult | Type, where: str) -> Job:
    """Return the job that is given as itself, by the result of its task, or as the only one of its type that waits."""
    if isinstance(given, Job):
        return given
    rows = Job.objects.using(jobs_alias())
    if hasattr(given, "task") and isinstance(number := getattr(given, "id", None), str):
        found: Job | None = rows.filter(pk=int(number)).first() if number.isdecimal() else None
        if found is None:
            raise InvalidJob(
                f"{where}: the result {shown(number)} is of no job; is its task's backend that of django_jobs?"
            )
        return found
    name = type_of(given, where).name
    waiting: list[Job] = list(rows.ready().filter(type=name)[:2])
    if not waiting:
        raise AssertionError(f"{where}: no job of {name} waits. Enqueue one, and give what `enqueue` returns.")
    if len(waiting) > 1:
        raise InvalidJob(
            f"{where}: more than one job of {name} waits; give what `enqueue` returned for the one that is meant."
        )
    return waiting[0]
