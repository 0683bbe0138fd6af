"""An app that kills its process twice at a point of a job: by os._exit, then by SIGKILL.

`plan.json` in the directory of DJANGO_JOBS_TEST_CRASHES names the points, by the type and the first argument of a job.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.apps import AppConfig

CRASHES = 2
_running = threading.local()


class CrashConfig(AppConfig):
    name = "tests.effects.crashes"
    label = "crashes"

    def ready(self) -> None:
        from django.core.mail import EmailMessage

        from django_jobs import effects
        from django_jobs.workers import calling, crew, ended, runner
        from django_jobs.workers.atomic import AtomicRun
        from example_project.shop import payments
        from tests.effects import replay_jobs

        here = Path(os.environ["DJANGO_JOBS_TEST_CRASHES"])
        plan = json.loads((here / "plan.json").read_text())

        def crash(point: str, *names: str) -> None:
            names = names or (getattr(_running, "name", ""),)
            taken = [number for name in names if plan.get(name) == point and (number := _next(here, name)) is not None]
            if taken:
                os._exit(7) if taken[0] == 0 else os.kill(os.getpid(), signal.SIGKILL)

        call, account = calling.call, ended.account

        def crashing_call(job_type: Any, claimed: Any, *rest: Any) -> Any:
            # The writer, another thread, is to kill us for the one before; not this job.
            while plan.get(getattr(_running, "name", "")) == "stored":
                threading.Event().wait(1)
            _running.name = named(claimed)
            crash("before")
            value = call(job_type, claimed, *rest)
            crash("returned")
            return value

        def crashing_account(region: Any, part: Any, statuses: Any) -> None:
            crash("stored", *(named(item.claimed) for item in part))
            account(region, part, statuses)

        setattr(crew, "QUICK_DEATH_SECONDS", 0.0)  # noqa: B010 (a next process need not wait)
        setattr(runner, "call", crashing_call)  # noqa: B010
        setattr(ended, "account", crashing_account)  # noqa: B010
        _after(effects, "_take", lambda: crash("taken"))
        _after(effects.Outside, "__enter__", lambda: crash("asked"))
        _after(effects.Outside, "__exit__", lambda: crash("answered"))
        for place, function in ((replay_jobs, "other_side"), (payments, "charge"), (EmailMessage, "send")):
            _after(place, function, lambda: crash("called"))
        _after(AtomicRun, "_complete", lambda: crash("completed"))
        _after(AtomicRun, "_commit", lambda: crash("committed"))


def _next(here: Path, name: str) -> int | None:
    """Note that a job is to die, and return how often it did before; None when that was often enough."""
    for number in range(CRASHES):
        try:
            (here / f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    return None


def named(claimed: Any) -> str:
    arguments = json.loads(claimed.payload)["args"]
    return f"{claimed.type}:{arguments[0] if arguments else ''}"


def _after(place: Any, name: str, act: Callable[[], None]) -> None:
    function = getattr(place, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        act()
        return value

    setattr(place, name, wrapped)
