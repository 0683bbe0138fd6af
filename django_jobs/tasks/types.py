"""The tasks that this process knows, each of which is a job type named by its path.

A task makes itself known where it is defined, as a job does: nothing is imported because a row names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any

from django_jobs import checked, registry
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.options import Define, Enqueue
from django_jobs.registry import JobType
from django_jobs.tasks import options, running
from django_jobs.tasks.api import InvalidTask
from django_jobs.tasks.task import has_same_type_options, own_options
from django_jobs.tasks.values import META


class UnusableBackend(InvalidTask):
    """OPTIONS or QUEUES of a backend cannot be used; its check says so as well."""


@dataclass(slots=True)
class Known:
    """A task as one backend has it, with the terms of its last enqueue: most have the same."""

    task: Any
    given: Mapping[str, Any]
    job_type: JobType
    last: tuple[Any, JobType, Enqueue] | None = None


_known: dict[tuple[str, str], Known] = {}
_tasks: dict[str, Any] = {}


def find(path: str) -> Any:
    """Return the task that was defined at a path, or None."""
    return _tasks.get(path)


def paths() -> list[str]:
    return sorted(_tasks)


def know(task: Any, alias: str, given: Mapping[str, Any]) -> Known:
    """Make a task known, as the backend `alias` with the OPTIONS `given` has it.

    Raises InvalidJob or InvalidJobType when one of its options cannot be used, and UnusableBackend for those of the backend.
    """
    known = _same(task, alias, given)
    if known is None:
        known = Known(task, given, _job_type(task, alias, given))
        _known[task.module_path, alias] = known
        _register(task, alias, known.job_type)
    elif task is not known.task and not has_same_type_options(task, known.task):
        _type_options(task, known.job_type.name, given)  # the first one's count, and wrong ones are refused
    return known


def _same(task: Any, alias: str, given: Mapping[str, Any]) -> Known | None:
    known = _known.get((task.module_path, alias))
    if known is None or known.task.func is not task.func or (known.given is not given and known.given != given):
        return None
    return known


def _register(task: Any, alias: str, job_type: JobType) -> None:
    registered = registry.find(job_type.name)
    # How it is run is as the backend says that it was defined for.
    if registered is None or registered.meta.get(META) == job_type.meta[META] or task.backend == alias:
        registry.register(job_type)
    found = _tasks.get(job_type.name)
    if found is None or found.func is not task.func:
        _tasks[job_type.name] = task


def _job_type(task: Any, alias: str, given: Mapping[str, Any]) -> JobType:
    for fault in options.problems(given):
        raise UnusableBackend(f"{task.module_path}: TASKS[{alias!r}]: {fault}")
    path = checked.text(task.module_path, "the path of the task")
    if inspect.isgeneratorfunction(task.func) or inspect.isasyncgenfunction(task.func):
        raise InvalidJobType("it is a generator function; return a list instead of yielding.")
    found = _type_options(task, path, given)
    return JobType(
        name=path,
        function=running.function_of(task.func, path, task.takes_context),
        signature=inspect.signature(task.func),
        takes_context=task.takes_context,
        queue=checked.queue(task.queue_name),
        priority=checked.priority(int(task.priority)),
        max_attempts=found.max_attempts,
        backoff=found.backoff,
        timeout=found.timeout,
        default_timeout=found.default_timeout,
        retry_on=found.retry_on,
        fail_on=found.fail_on,
        durable=found.durable,
        atomic=found.atomic,
        other_databases=found.other_databases,
        tags=found.tags,
        meta={META: {"backend": alias}},
        ended=running.ended,
    )


def _type_options(task: Any, path: str, given: Mapping[str, Any]) -> Define:
    found = options.of_type(options.merged(given, path, own_options(task)))
    if found.atomic and iscoroutinefunction(task.func):
        raise InvalidJobType(
            f"{path} is an async function, which cannot be atomic: what it does with the database is done by another "
            "thread, outside the job's transaction. Make it a plain function."
        )
    if found.other_databases and not found.atomic:
        raise InvalidJob("other_databases says what an atomic task may write to; give atomic=True as well.")
    return found


def terms(known: Known, task: Any) -> tuple[JobType, Enqueue]:
    """Return the type and the options with which an enqueue of a task is stored."""
    last = known.last  # asked for once: another thread may put that of its own there meanwhile
    if last is not None and last[0] is task:
        return last[1], last[2]
    found = options.of_enqueue(options.merged(known.given, known.job_type.name, own_options(task)))
    found |= {"queue": task.queue_name, "priority": int(task.priority), "run_at": task.run_after}
    using, job_type = Enqueue().changed(found), known.job_type
    if using.run_at is not None:
        # When it runs changes with each retry; when it was to run first is kept.
        meta = {META: {**job_type.meta[META], "run_after": using.run_at.isoformat()}}
        job_type = replace(job_type, meta=meta)
    known.last = task, job_type, using
    return job_type, using
