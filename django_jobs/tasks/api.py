"""The Tasks framework in use: Django's own from 6.0 on, and the package django-tasks before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    except ModuleNotFoundError as error:
        raise ImportError(
            "A Tasks backend on Django before 6.0 needs the package django-tasks (0.12 or newer): install "
            "django_jobs with the extra `tasks`."
        ) from error
    from django_tasks import exceptions
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

    # Renamed to Django's name after 0.12.
    InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
