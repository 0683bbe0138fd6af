"""The system check of the setting TASKS: the framework's own runs only where something has imported it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import django
from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning
from django.utils.module_loading import import_string

from django_jobs.exceptions import shown
from django_jobs.tasks import discovery

HINT = f"The backend of django_jobs is {discovery.BACKEND!r}."


@register("django_jobs")
def check_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    given = getattr(settings, "TASKS", {})
    if not isinstance(given, Mapping):
        return (
            [_error(f"TASKS is {shown(given)}; give a dict of backends by their aliases.")] if _has_framework() else []
        )
    found = [message for alias, params in given.items() for message in _of_backend(f"TASKS[{alias!r}]", params)]
    return found or _asked_for_the_framework()


def _of_backend(where: str, params: Any) -> list[CheckMessage]:
    path = params.get("BACKEND") if isinstance(params, Mapping) else None
    # Without a framework nobody reads the setting, unless it was meant for us.
    if not (_has_framework() or str(path).startswith("django_jobs.")):
        return []
    if not isinstance(params, Mapping):
        return [_error(f"{where} is {shown(params)}; give a dict with the path of a backend as BACKEND.")]
    if not isinstance(path, str):
        return [_error(f"{where} has {shown(path)} as BACKEND; give the path of a backend.")]
    said = f"{where} names the backend {path!r}, which"
    try:
        kind = import_string(path)
    except Exception as error:  # whatever its module raises
        return [_error(f"{said} cannot be imported: {error}")]
    if not isinstance(kind, type) or not all(
        hasattr(kind, name) for name in ("enqueue", "validate_task", "task_class")
    ):
        return [_error(f"{said} is no class of a backend.")]
    if inspect.isabstract(kind):
        return [_error(f"{said} is only what backends are made from.")]
    return _of_the_other_framework(said, kind)


def _of_the_other_framework(said: str, kind: type) -> list[CheckMessage]:
    frameworks = {base.__module__.partition(".")[0] for base in kind.__mro__ if base.__name__ == "BaseTaskBackend"}
    if django.VERSION < (6, 0) or frameworks != {"django_tasks"}:
        return []
    return [
        CheckWarning(
            f"{said} is one of the package django-tasks: tasks of django.tasks are none of its own.",
            hint=f"{HINT} Those of Django are in django.tasks.backends.",
            id="django_jobs.W006",
        )
    ]


def _error(said: str) -> CheckMessage:
    return Error(said, hint=HINT, id="django_jobs.E010")


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
