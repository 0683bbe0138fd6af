"""Calling a task as the function of its job, and telling the framework's signals of it.

Imported where tasks are defined, maybe before there are models: what needs those is imported when a task runs.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.dispatch import Signal

from django_jobs import log
from django_jobs.context import current
from django_jobs.exceptions import JobsError
from django_jobs.outcomes import Outcome
from django_jobs.tasks.api import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from django_jobs.tasks.values import plain

if TYPE_CHECKING:
    from django_jobs.engines.values import Claimed, Done, Settlement
    from django_jobs.tasks.errors import ErrorText


@dataclass(frozen=True, slots=True)
class _Begun:
    result: Any
    sender: type
    began_at: float


# By the id of the job and the number of its run.
_begun: dict[tuple[int, int], _Begun] = {}


def function_of(function: Callable[..., Any], path: str, takes_context: bool) -> Callable[..., Any]:
    """Return what a worker calls: the task's function, with its own kind of context, between its signals."""

    def arguments(begun: _Begun, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (TaskContext(task_result=begun.result), *args[1:]) if takes_context else args

    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            begun = await sync_to_async(_begin)(path)
            return _returned(await function(*arguments(begun, args), **kwargs))

        return run_async

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _returned(function(*arguments(_begin(path), args), **kwargs))

    return run


def _returned(value: Any) -> Any:
    return value if isinstance(value, Outcome) else plain(value)


def _begin(path: str) -> _Begun:
    from django_jobs.tasks import results

    context = current.get()
    if context is None:
        raise JobsError(f"{path} is called as a job, and none is being run; call the task's own function.")
    key = context.job_id, context.run
    if key in _begun:
        return _begun[key]  # an atomic one is tried again, in place
    result = results.running(context.job_id)
    found = _begun[key] = _Begun(result, type(task_backends[result.backend]), time.monotonic())
    _send(task_started, "task_started", found)
    return found


def ended(claimed: Claimed, outcome: Done | Settlement) -> None:
    """Tell that a task is finished, if by this end of a run it is."""
    begun = _begun.pop((claimed.id, claimed.token), None)
    if begun is None:
        return
    try:
        _finish(begun, outcome)
    except Exception:  # no outcome waits for who only listens
        log.loop_failed("Telling that a task is finished")


def _finish(begun: _Begun, outcome: Done | Settlement) -> None:
    from django_jobs.engines.values import Done

    error: BaseException | None = None
    if isinstance(outcome, Done):
        values = {"status": TaskResultStatus.SUCCESSFUL, "_return_value": json.loads(outcome.result or "null")}
    elif outcome.status == "ready":
        return
    else:
        error = outcome.exception
        values = {"status": TaskResultStatus.FAILED}
        said = _said(outcome)
        begun.result.errors.append(TaskError(exception_class_path=said.path, traceback=said.text))
    elapsed = timedelta(seconds=time.monotonic() - begun.began_at)
    values["finished_at"] = begun.result.last_attempted_at + elapsed
    for name, value in values.items():
        object.__setattr__(begun.result, name, value)
    _send_finished(begun, error)


def _said(outcome: Settlement) -> ErrorText:
    from django_jobs.tasks.errors import ErrorText, class_path, of_entry

    if outcome.exception is not None:
        return ErrorText(class_path(type(outcome.exception)), outcome.error or "")
    return of_entry(json.loads(outcome.entry or "{}"), outcome.error or "")


def _send_finished(begun: _Begun, error: BaseException | None) -> None:
    """Send it while the error is being handled, if there was one: receivers ask sys.exc_info()."""
    if error is None:
        _send(task_finished, "task_finished", begun)
        return
    traceback = error.__traceback__
    try:
        raise error
    except BaseException:
        _send(task_finished, "task_finished", begun)
    finally:
        error.__traceback__ = traceback  # the log is to show it as it was


def _send(signal: Signal, name: str, begun: _Begun) -> None:
    from django_jobs.receivers.guard import send

    send(signal, name, sender=begun.sender, task_result=begun.result)
