"""The Tasks framework by the names that its documentation has, whichever package it is in."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django

NAME = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
_tasks: Any = import_module(NAME)
_base: Any = import_module(f"{NAME}.base")
_exceptions: Any = import_module(f"{NAME}.exceptions")
_signals: Any = import_module(f"{NAME}.signals")

task = _tasks.task
task_backends = _tasks.task_backends
default_task_backend = _tasks.default_task_backend
Task = _base.Task
TaskContext = _base.TaskContext
TaskResult = _base.TaskResult
TaskResultStatus = _base.TaskResultStatus
TaskResultDoesNotExist = _exceptions.TaskResultDoesNotExist
TaskResultMismatch = _exceptions.TaskResultMismatch
InvalidTask = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
task_enqueued = _signals.task_enqueued
task_started = _signals.task_started
task_finished = _signals.task_finished
