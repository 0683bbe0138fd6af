"""What may be said of tasks in a backend's OPTIONS, for all and by their paths, and of one task where it is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_jobs import checked
from django_jobs.backoff import Backoff
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.options import Define, Enqueue

# How a task is run, whoever enqueued it.
OF_TYPE = ("atomic", "backoff", "durable", "fail_on", "other_databases", "retry_on", "tags")
# Kept with each job: a default for it, or what one enqueue says.
OF_JOB = ("max_attempts", "timeout")
# Only a task or one enqueue of it can say these.
OF_ENQUEUE = ("expires", "idempotency_key", "unique")
ANYWHERE = (*OF_TYPE, *OF_JOB, "detached")
OWN = (*ANYWHERE, *OF_ENQUEUE)
USING = (*OF_JOB, *OF_ENQUEUE, "detached")
# Of the backend as a whole.
TASKS, MODULES = "tasks", "modules"


def merged(given: Mapping[str, Any], path: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task: its own come first, then those by its path, then those for all."""
    defaults = {name: value for name, value in given.items() if name not in (TASKS, MODULES)}
    found = {**defaults, **given.get(TASKS, {}).get(path, {}), **own}
    if isinstance(numbers := found.get("backoff"), Sequence) and not isinstance(numbers, str) and len(numbers) == 3:
        found["backoff"] = Backoff(base=numbers[0], factor=numbers[1], cap=numbers[2])
    return found


def of_type(found: Mapping[str, Any]) -> Define:
    return Define.read({name: value for name, value in found.items() if name in (*OF_TYPE, *OF_JOB)})


def of_enqueue(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in USING}


def modules(given: Any) -> Sequence[str]:
    found = given.get(MODULES, ()) if isinstance(given, Mapping) else ()
    return found if isinstance(found, list | tuple) else ()


def problems(given: Any) -> list[str]:
    """Return what is wrong with OPTIONS, a sentence a fault."""
    if not isinstance(given, Mapping):
        return [f"OPTIONS is {shown(given)}; give a dict."]
    tasks = given.get(TASKS, {})
    if not isinstance(tasks, Mapping) or not all(isinstance(item, Mapping) for item in tasks.values()):
        return [f"OPTIONS[{TASKS!r}] is {shown(tasks)}; give a dict of the options of each task by its path."]
    faults = _of_modules(given.get(MODULES, []))
    defaults = {name: value for name, value in given.items() if name not in (TASKS, MODULES)}
    faults += _of(defaults, "OPTIONS", (*ANYWHERE, TASKS, MODULES))
    for path, item in tasks.items():
        faults += _of(item, f"OPTIONS[{TASKS!r}][{shown(path)}]", ANYWHERE)
    return faults


def queues_problem(given: Any) -> str:
    """Return what is wrong with QUEUES, as a sentence."""
    if not isinstance(given, list | tuple | set | frozenset):
        return f"QUEUES is {shown(given)}; give a list of the names of queues."
    for name in given:
        try:
            checked.queue(name)
        except (InvalidJob, InvalidJobType) as error:
            return f"QUEUES has {shown(name)}: {error}"
    return ""


def _of_modules(given: Any) -> list[str]:
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        return []
    return [f"OPTIONS[{MODULES!r}] is {shown(given)}; give a list of the names of modules."]


def _of(given: Mapping[str, Any], where: str, known: Sequence[str]) -> list[str]:
    unknown = [name for name in given if name not in known]
    if unknown:
        return [f"{where} has no option {shown(unknown[0])}; it has {', '.join(sorted(known))}."]
    try:
        found = merged(given, "", {})
        of_type(found)
        Enqueue().changed(of_enqueue(found))
    except (InvalidJob, InvalidJobType) as error:
        return [f"{where}: {error}"]
    return []
