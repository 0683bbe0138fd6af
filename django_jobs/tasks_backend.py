"""The backend for Django's Tasks framework: `"BACKEND": "django_jobs.tasks_backend.JobsBackend"`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from inspect import isfunction
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning

from django_jobs import router
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.options import Enqueue
from django_jobs.registry import JobType
from django_jobs.tasks import discovery, options, types
from django_jobs.tasks.api import BaseTaskBackend, InvalidTask, Task, TaskResult, task_enqueued
from django_jobs.tasks.task import JobsTask
from django_jobs.tasks.values import plain


class JobsBackend(BaseTaskBackend):
    """Keeps tasks as jobs in the database, in the caller's transaction, for `runworkers` to run.

    Made where the first task is defined, maybe before there are models: those are imported when it is used.
    """

    task_class = JobsTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self._wrong_queues = options.queues_problem(params.get("QUEUES", []))
        # The framework would make letters of a text.
        super().__init__(alias, {**params, "QUEUES": []} if self._wrong_queues else params)

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask unless a task can be run; make it known to this process.

        Where OPTIONS or QUEUES cannot be used it may be defined all the same, for the check to say so rather than a
        traceback from the first module that has a task; an enqueue is refused.
        """
        if not isinstance(task, Task):
            raise InvalidTask(
                f"{shown(task)} is a task of another framework than that of this Django; define it with "
                f"`from {Task.__module__.removesuffix('.base')} import task`."
            )
        if task.run_after is not None and not isinstance(task.run_after, datetime):
            raise InvalidTask(
                f"run_after is {shown(task.run_after)}; give a datetime, as timezone.now() + timedelta(...)."
            )
        if not isfunction(task.func):
            raise InvalidTask(f"@task takes a function, and {shown(task.func)} is none.")
        # What the framework would compare, or look up, as it is.
        priority = task.priority
        if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
            raise InvalidTask(f"priority is {shown(priority)}; give a whole number from -100 to 100.")
        if not isinstance(task.queue_name, str):
            raise InvalidTask(f"queue_name is {shown(task.queue_name)}; give text.")
        super().validate_task(task)
        with suppress(types.UnusableBackend):
            self._terms(task)

    def _terms(self, task: Any) -> tuple[JobType, Enqueue]:
        if self._wrong_queues:
            raise types.UnusableBackend(f"{task.module_path}: TASKS[{self.alias!r}]: {self._wrong_queues}")
        try:
            return types.terms(types.know(task, self.alias, self.options), task)
        except (InvalidJob, InvalidJobType) as error:
            raise InvalidTask(f"{task.module_path}: {error}") from error

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> TaskResult:  # type: ignore[type-arg]
        """Store a call of a task in the caller's transaction on the jobs' database and return its result.

        Raises before anything is written, and leaves the transaction usable: InvalidTask; InvalidJob (a ValueError) and
        InvalidJobType (a TypeError) for arguments that do not fit the function or are not JSON.
        """
        from django_jobs.queue.enqueue import enqueue
        from django_jobs.receivers.guard import send
        from django_jobs.tasks import results

        self.validate_task(task)
        job_type, using = self._terms(task)
        job = enqueue(job_type, using, tuple(plain(list(args))), plain(dict(kwargs)))
        result = results.of(job, task, self.alias)
        if not job.reused:
            send(task_enqueued, "task_enqueued", sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:  # type: ignore[type-arg]
        """Return the result with this id, from the jobs or their archive; raise TaskResultDoesNotExist."""
        from django_jobs.tasks import results

        return results.get(self.alias, result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        faults = [*filter(None, [self._wrong_queues]), *options.problems(self.options)]
        found: list[CheckMessage] = [
            Error(f"{where}: {fault}", hint="See docs/tasks.md for the options.", id="django_jobs.E011")
            for fault in faults
        ]
        if not apps.is_installed("django_jobs"):
            found.append(
                Error(
                    f"{where} is a backend of django_jobs, which is not installed as an app.",
                    hint=f"Add 'django_jobs' to INSTALLED_APPS and run `{router.migrate(router.wanted() or 'default')}`.",
                    id="django_jobs.E012",
                )
            )
        return found if faults else [*found, *self._without_task(where)]

    def _without_task(self, where: str) -> list[CheckMessage]:
        """Return a warning for each path in OPTIONS that no task has, by now that modules have been imported."""
        return [
            CheckWarning(
                f"{where}['OPTIONS']['tasks'] names {shown(path)}, and no task is known by this path.",
                hint=f"Is it {' or '.join(map(repr, near))}?"
                if near
                else "Give the path of a task, as 'shop.tasks.send'.",
                id="django_jobs.W005",
            )
            for path, near in discovery.without_task(self.options)
        ]
