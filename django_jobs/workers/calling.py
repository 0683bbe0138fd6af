"""Calling the function of a job with its stored arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.module_loading import import_string

from django_jobs.context import Context
from django_jobs.engines.values import Claimed
from django_jobs.registry import JobType
from django_jobs.workers.coroutines import run_async
from django_jobs.workers.deadlines import Watch

# As `json.loads`, without its looks for what the database cannot have: bytes, or space around the text.
_decode = json.JSONDecoder().raw_decode
_is_async = lru_cache(maxsize=None)(iscoroutinefunction)


def context_of(
    claimed: Claimed, stop_asked: Callable[[], bool], report: Callable[[dict[str, object]], None]
) -> Context:
    """Return what a function may know of the run of a claimed job."""
    return Context(
        job_id=claimed.id,
        attempt=claimed.attempts + 1,
        run=claimed.token,
        idempotency_key=claimed.idempotency_key or f"job:{claimed.id}",
        slot=claimed.slot,
        stop_asked=stop_asked,
        report=report,
        job=claimed,
    )


def call(job_type: JobType, claimed: Claimed, context: Context, watch: Watch, around: str | None = None) -> Any:
    """Call it, inside of what the project has `around` each run; whatever that raises is raised by the run."""
    if around is None:
        return _called(job_type, claimed, context, watch)
    pid = os.getpid()
    try:
        with _around(around)(context):
            return _called(job_type, claimed, context, watch)
        return None  # it has swallowed an error
    finally:
        _end_copy(pid)


@lru_cache(maxsize=1)
def _around(path: str) -> Callable[[Context], AbstractContextManager[Any, bool]]:
    found: Callable[[Context], AbstractContextManager[Any, bool]] = import_string(path)
    return found


def _called(job_type: JobType, claimed: Claimed, context: Context, watch: Watch) -> Any:
    content, _ = _decode(claimed.payload)
    arguments = [context, *content["args"]] if job_type.takes_context else content["args"]
    pid = os.getpid()
    try:
        if _is_async(job_type.function):
            watch.expect_task()
            return run_async(job_type.function, arguments, content["kwargs"], watch.begin_task)
        return job_type.function(*arguments, **content["kwargs"])
    finally:
        _end_copy(pid)


def _end_copy(pid: int) -> None:
    """End a process that a handler has forked, when the copy of its thread leaves it: the end is the original's to tell."""
    if os.getpid() != pid:
        os._exit(0)
