"""Which backends of ours the project uses, and finding its tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.tasks import options

OTHERS = ("django.tasks.", "django_tasks.")


def configured() -> Iterator[tuple[str, str, Any]]:
    """Return the alias, the BACKEND and the OPTIONS of each backend that the setting TASKS has."""
    found = getattr(settings, "TASKS", None)
    for alias, params in found.items() if isinstance(found, Mapping) else ():
        path = params.get("BACKEND") if isinstance(params, Mapping) else None
        if isinstance(path, str):
            yield str(alias), path, params.get("OPTIONS", {})


def ours() -> list[tuple[str, Any]]:
    """Return alias and OPTIONS of each backend that is ours, or made from it."""
    found = []
    for alias, path, given in configured():
        # For all others the framework need not be imported.
        if not path.startswith(OTHERS) and _is_ours(path):
            found.append((alias, given))
    return found


def _is_ours(path: str) -> bool:
    try:
        kind = import_string(path)
    except ImportError:
        return False  # the check says so
    backend = sys.modules.get("django_jobs.tasks_backend")
    return backend is not None and isinstance(kind, type) and issubclass(kind, backend.JobsBackend)


def discover() -> None:
    """Import the modules named `tasks` of installed apps, and those that OPTIONS name, if a backend of ours is used."""
    backends = ours()
    if not backends:
        return
    autodiscover_modules("tasks")
    for alias, given in backends:
        for name in options.modules(given):
            try:
                import_module(name)
            except ImportError as error:
                raise ImproperlyConfigured(
                    f"TASKS[{alias!r}]['OPTIONS'][{options.MODULES!r}] names {shown(name)}, which cannot be imported: {error}"
                ) from error


def know_loaded() -> None:
    """Make tasks known that were defined for another backend: they may be enqueued with `using(backend=...)`."""
    backends = ours()
    if not backends:
        return
    from django_jobs.tasks import types
    from django_jobs.tasks.api import Task

    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # By its type: to ask a lazy object for its class makes it.
            if issubclass(type(value), Task) and types.find(value.module_path) is None:
                try:
                    types.know(value, *backends[0])
                except (InvalidJob, InvalidJobType):
                    continue  # it cannot be enqueued with ours either
