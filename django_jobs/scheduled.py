"""The decorator that gives a job a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from inspect import isfunction
from typing import Any, Literal, Never, Protocol, TypeVar

from django_jobs import registry
from django_jobs.checked import reject_unknown
from django_jobs.decorators import JobFunction
from django_jobs.exceptions import InvalidJobType, shown
from django_jobs.schedules import code


class Task(Protocol):
    """A task of Django's Tasks framework, which is not imported to ask whether something is one."""

    @property
    def func(self) -> Callable[..., Any]: ...
    @property
    def module_path(self) -> str: ...


J = TypeVar("J", bound=JobFunction[..., ..., Any] | Task)


def schedule(
    expression: str = "",
    /,
    *,
    every: float | timedelta | None = None,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timezone: str | None = None,
    nonexistent: Literal["after_gap", "skip"] = "after_gap",
    ambiguous: Literal["first", "second", "both"] = "first",
    missed: Literal["latest", "skip", "all"] = "latest",
    missed_grace: float | timedelta | None = None,
    missed_limit: int = 100,
    missed_window: float | timedelta | None = None,
    overlap: Literal["allow", "skip", "queue"] = "allow",
    spread: float | timedelta | None = None,
    queue: str = "",
    priority: int | None = None,
    enabled: bool = True,
    **unknown: Never,
) -> Callable[[J], J]:
    """Have a job be made at the times of a cron expression, or at an interval: `@schedule("30 2 * * *")` above `@job`,
    or above `@task` of Django's Tasks.

    The row of the schedule is made, or updated, when a scheduler starts; it is found by `name`, which is the job's unless
    given, so that a second schedule of a job needs one. What somebody has changed in the admin stays.

    Durations are seconds or timedelta. `every` counts from the whole second in which the row was made. `timezone` is that
    of the project unless given; `nonexistent` and `ambiguous` say what becomes of local times that the clock jumps over
    and of those that come twice. A slot is missed when no scheduler comes to it within `missed_grace` (MISSED_GRACE):
    then `missed` says whether the latest of them is made up for, none, or all, of which the newest `missed_limit` are,
    and none that is older than `missed_window`. `overlap` says what becomes of a slot while the job of the one before
    waits or runs. `spread` puts the job's due time off by a part of it that is always the same for this schedule.

    Raises InvalidJobType when it does not stand above a job or a task, without parentheses, and for an option that there is not.
    Values that cannot be used are reported by `manage.py check`, and such a schedule is not stored.
    """
    values = _values(dict(locals()))

    def decorate(target: J) -> J:
        code.register(_of(target, name, values))
        return target

    return decorate


def _of(target: Any, name: str | None, values: dict[str, Any]) -> code.CodeSchedule:
    of_task = _is_task(target)
    if isinstance(target, JobFunction):
        kind, place = target.name, target.job_type.place
    elif of_task:
        kind, place = target.module_path, registry.place_of(target.func)
    else:
        what = getattr(target, "__qualname__", shown(target))
        raise InvalidJobType(
            f"@schedule stands above @job, and {what} is no job; write @job, or @task, directly below it."
        )
    return code.CodeSchedule(
        name=kind if name is None else name, type=kind, values=values, place=place, of_task=of_task
    )


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was given as fields of Schedule: the name and, where the project's zone is meant, the zone left out."""
    expression, unknown = given["expression"], given.pop("unknown")
    if isinstance(expression, JobFunction) or _is_task(expression):
        what = repr(expression) if isinstance(expression, JobFunction) else f"the task {expression.module_path}"
        raise InvalidJobType(f'@schedule above {what} does not say when; write @schedule("30 2 * * *").')
    reject_unknown(unknown, given.keys() - {"expression"}, "@schedule")
    args, kwargs = given.pop("args"), given.pop("kwargs")
    given["payload"] = {"args": _plain(list, args), "kwargs": {} if kwargs is None else _plain(dict, kwargs)}
    return {name: value for name, value in given.items() if name != "name" and (name, value) != ("timezone", None)}


def _is_task(target: object) -> bool:
    return isfunction(getattr(target, "func", None)) and isinstance(getattr(target, "module_path", None), str)


def _plain(kind: type[list[Any]] | type[dict[str, Any]], value: Any) -> Any:
    """Return a sequence as the list, or a mapping as the dict, that JSON has; all else as it is, for the check to refuse."""
    fits = isinstance(value, Mapping) if kind is dict else isinstance(value, list | tuple)
    return kind(value) if fits else value
