"""Which backends of ours the project uses, and finding its tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.tasks import options

BACKEND = "django_jobs.tasks_backend.JobsBackend"
# Not imported to be asked: with the framework comes its own check, which ends at the first backend that is not there.
OTHERS = ("django_jobs.", "django.tasks.", "django_tasks.")


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
        if path == BACKEND or (not path.startswith(OTHERS) and _is_ours(path)):
            found.append((alias, given))
    return found


def _is_ours(path: str) -> bool:
    try:
        kind = import_string(path)
    except Exception:  # whatever its module raises
        return False  # the check says so
    backend = sys.modules.get("django_jobs.tasks_backend")
    return backend is not None and isinstance(kind, type) and issubclass(kind, backend.JobsBackend)


def _may_be_imported() -> bool:
    """Import our backend, and with it the framework and its check."""
    try:
        import_module("django_jobs.tasks_backend")
    except ImportError:
        return False  # the check says so
    return True


def discover() -> None:
    """Import the modules named `tasks` of installed apps, and those that OPTIONS name, if a backend of ours is used."""
    backends = ours()
    if not backends or not _may_be_imported():
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


def find(path: str) -> Any:
    """Return the task that was defined at a path, or None.

    In a process that has not served a request yet, what only views import is not known: the URLconf is imported then.
    """
    from django.urls import get_resolver

    from django_jobs.tasks import types

    if types.find(path) is None and getattr(settings, "ROOT_URLCONF", None):
        _ = get_resolver().url_patterns
    return types.find(path)


def without_task(given: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the paths that OPTIONS["tasks"] names and no task has, each with the paths that are near to it."""
    from django_jobs.tasks import types

    missing = [path for path in given.get(options.TASKS, {}) if not _is_loaded(path) and find(path) is None]
    known = types.paths() if missing else []
    return [(path, get_close_matches(str(path), known)) for path in missing]


def _is_loaded(path: object) -> bool:
    """Tell whether there is a task at a path, for whichever backend it was defined."""
    from django_jobs.tasks.api import Task

    module, _, name = str(path).rpartition(".")
    return issubclass(type(getattr(sys.modules.get(module), name, None)), Task)


def know_loaded() -> None:
    """Make tasks known that were defined for another backend: they may be enqueued with `using(backend=...)`."""
    backends = ours()
    if not backends or not _may_be_imported():
        return
    from django_jobs.tasks import types
    from django_jobs.tasks.api import InvalidTask, Task

    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # By its type: to ask a lazy object for its class makes it.
            if issubclass(type(value), Task) and types.find(value.module_path) is None:
                try:
                    types.know(value, *backends[0])
                except (InvalidJob, InvalidJobType, InvalidTask):
                    continue  # it cannot be enqueued with ours either
