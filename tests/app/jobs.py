"""Jobs of the tests. Handlers that wait do so for a file that the test makes, as a stand-in for long work."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections

from django_jobs import Backoff, Cancel, Context, Fail, Retry, Snooze, job
from tests import router
from tests.app.models import Effect


def effect(key: str, run: int = 0) -> None:
    Effect.objects.using(router.jobs_alias).create(key=key, run=run, pid=os.getpid())


@job
def nothing(number: int = 0) -> int:
    return number


@job
def log_in(user: str, token: str = "", /, *codes: int, tries: int = 3, **options: Any) -> str:
    return user


@job(takes_context=True)
def leave_effect(context: Context, key: str) -> str:
    effect(key, context.run)
    return key


@job(takes_context=True)
def wait_for_file(context: Context, key: str, path: str, seconds: float = 60.0) -> str:
    """Leave "<key>:start", wait for the file, leave "<key>:end"."""
    effect(f"{key}:start", context.run)
    until = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.01)
    effect(f"{key}:end", context.run)
    return key


@job(takes_context=True)
def stop_when_asked(context: Context, key: str) -> Snooze:
    effect(f"{key}:start", context.run)
    while not context.should_stop:
        time.sleep(0.01)
    effect(f"{key}:stopped", context.run)
    return Snooze(0)


@job(takes_context=True)
def hold_interpreter(context: Context, key: str, seconds: float) -> None:
    """Hold the interpreter for at least `seconds` in calls that never let go of it: a catastrophic pattern."""
    effect(f"{key}:start", context.run)
    length, until = 20, time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.monotonic()
        re.fullmatch(r"(a+)+b", "a" * length)
        if time.monotonic() - started < seconds / 8:
            length += 1
    effect(f"{key}:end", context.run)


@job(takes_context=True)
def die(context: Context, key: str, signal_number: int = 9) -> None:
    effect(key, context.run)
    os.kill(os.getpid(), signal_number)
    time.sleep(60)


@job(takes_context=True)
def report(context: Context, steps: int) -> None:
    for step in range(steps + 1):
        context.progress(step, steps, f"step {step}")


@job(takes_context=True, max_attempts=3, backoff=Backoff(base=0))
def fail_until(context: Context, attempt: int) -> int:
    """Fail before the given attempt."""
    if context.attempt < attempt:
        raise RuntimeError(f"attempt {context.attempt} fails")
    return context.attempt


@job(retry_on=(OSError,), fail_on=(ValidationError, FileNotFoundError), backoff=Backoff(base=0))
def choose_error(name: str) -> None:
    raise {
        "OSError": OSError("again"),
        "FileNotFoundError": FileNotFoundError("never"),
        "ValidationError": ValidationError("never"),
        "KeyError": KeyError("never"),
    }[name]


@job(takes_context=True, max_attempts=1)
def misbehave(context: Context, how: str) -> Any:
    """End in one of the ways that a handler must not end."""
    alias = router.jobs_alias
    match how:
        case "raise NUL":
            raise ValueError("\x00")
        case "return object":
            return object()
        case "return NaN":
            return float("nan")
        case "leave transaction":
            with connections[alias].cursor() as cursor:
                cursor.execute("BEGIN")
                effect(f"{how} {context.job_id}", context.run)
        case "exit":
            raise SystemExit(3)
        case "return class":
            return Retry
        case "raise unprintable":
            raise Unprintable
        case "raise endless":
            raise Endless
        case "return huge":
            return "x" * 2_000_000
        case "bad progress":
            context.progress(2, 1)
        case "bad retry":
            return Retry(-1)
        case "autocommit off":
            connections[alias].set_autocommit(False)
        case _:
            raise AssertionError(how)
    return None


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Endless(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        return Endless()


@job(max_attempts=2)
def end_as(how: str, raised: bool) -> Any:
    """Return or raise one of the outcome values."""
    outcome = {"retry": Retry(0), "snooze": Snooze(3600), "fail": Fail("no"), "cancel": Cancel("enough")}[how]
    if raised:
        raise outcome
    return outcome


from tests.app import (  # noqa: E402 (only a module named jobs is found by itself)
    around_jobs,  # noqa: F401
    async_jobs,  # noqa: F401
    atomic_jobs,  # noqa: F401
    deadline_jobs,  # noqa: F401
    killer_jobs,  # noqa: F401
    process_jobs,  # noqa: F401
    storm_jobs,  # noqa: F401
)
