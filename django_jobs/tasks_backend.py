"""The backend for Django's Tasks framework: `"BACKEND": "django_jobs.tasks_backend.JobsBackend"`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from django_jobs import router
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.tasks import options, types
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

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask unless a task can be run; make it known to this process."""
        if not isinstance(task, Task):
            raise InvalidTask(
                f"{shown(task)} is a task of another framework than that of this Django; define it with "
                f"`from {Task.__module__.removesuffix('.base')} import task`."
            )
        if task.run_after is not None and not isinstance(task.run_after, datetime):
            raise InvalidTask(
                f"run_after is {shown(task.run_after)}; give a datetime, as timezone.now() + timedelta(...)."
            )
        super().validate_task(task)
        self._known(task)

    def _known(self, task: Any) -> types.Known:
        try:
            return types.know(task, self.alias, self.options)
        except (InvalidJob, InvalidJobType) as error:
            raise InvalidTask(f"{task.module_path}: {error}") from error

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> TaskResult:  # type: ignore[type-arg]
        """Store a call of a task in the caller's transaction on the jobs' database and return its result.

        Raises before anything is written, and leaves the transaction usable: InvalidTask; InvalidJob (a ValueError) and
        InvalidJobType (a TypeError) for arguments that do not fit the function or are not JSON.
        """
        from django_jobs.queue.enqueue import enqueue
        from django_jobs.tasks import results

        self.validate_task(task)
        job_type, using = types.terms(self._known(task), task)
        job = enqueue(job_type, using, tuple(plain(list(args))), plain(dict(kwargs)))
        result = results.of(job, task, self.alias)
        if not job.reused:
            task_enqueued.send_robust(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:  # type: ignore[type-arg]
        """Return the result with this id, from the jobs or their archive; raise TaskResultDoesNotExist."""
        from django_jobs.tasks import results

        return results.get(self.alias, result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        found: list[CheckMessage] = [
            Error(f"{where}: {fault}", hint="See docs/tasks.md for the options.", id="django_jobs.E011")
            for fault in options.problems(self.options)
        ]
        if not apps.is_installed("django_jobs"):
            found.append(
                Error(
                    f"{where} is a backend of django_jobs, which is not installed as an app.",
                    hint=f"Add 'django_jobs' to INSTALLED_APPS and run `{router.migrate(router.wanted() or 'default')}`.",
                    id="django_jobs.E012",
                )
            )
        return found
