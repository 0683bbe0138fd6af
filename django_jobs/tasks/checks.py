"""The system check of the setting TASKS: the framework's own runs only where something has imported it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import django
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from django_jobs.tasks import discovery


@register("django_jobs")
def check_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for alias, path, _ in discovery.configured():
        # Without a framework nobody reads the setting, unless it was meant for us.
        if _has_framework() or path.startswith("django_jobs."):
            try:
                import_string(path)
            except ImportError as error:
                found.append(
                    Error(
                        f"TASKS[{alias!r}] names the backend {path!r}, which cannot be imported: {error}",
                        hint=f"The backend of django_jobs is {discovery.BACKEND!r}.",
                        id="django_jobs.E010",
                    )
                )
    return found or _asked_for_the_framework()


def _has_framework() -> bool:
    return django.VERSION >= (6, 0) or find_spec("django_tasks") is not None


def _asked_for_the_framework() -> list[CheckMessage]:
    """Have our backends checked where the package django-tasks, which does that, is no installed app."""
    if django.VERSION >= (6, 0) or "django_tasks.checks" in sys.modules:
        return []
    backends = discovery.ours()
    if not backends:
        return []
    from django_jobs.tasks.api import task_backends

    return [message for alias, _ in backends for message in task_backends[alias].check()]
