"""Calling the function of a job with its stored arguments."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction

from django_jobs.context import Context, current
from django_jobs.engines.values import Claimed
from django_jobs.registry import JobType
from django_jobs.workers.coroutines import run_async
from django_jobs.workers.deadlines import Watch

# As `json.loads`, without its looks for what the database cannot have: bytes, or space around the text.
_decode = json.JSONDecoder().raw_decode
_is_async = lru_cache(maxsize=None)(iscoroutinefunction)


def call(job_type: JobType, claimed: Claimed, context: Context, watch: Watch) -> Any:
    content, _ = _decode(claimed.payload)
    arguments = [context, *content["args"]] if job_type.takes_context else content["args"]
    pid = os.getpid()
    token = current.set(context)
    try:
        if _is_async(job_type.function):
            watch.expect_task()
            return run_async(job_type.function, arguments, content["kwargs"], watch.begin_task)
        return job_type.function(*arguments, **content["kwargs"])
    finally:
        current.reset(token)
        if os.getpid() != pid:
            os._exit(0)  # the handler forked, and this is the copy of its thread: the end is the original's to tell
