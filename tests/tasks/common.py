"""Running tasks inside the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.test import override_settings

from django_jobs.context import Context
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed
from django_jobs.models import Job
from django_jobs.workers import calling
from django_jobs.workers.ended import Ended, store
from django_jobs.workers.runner import Runner
from tests.processes.parts import SETTINGS, claim
from tests.tasks_contract.framework import task_enqueued, task_finished, task_started

OURS = "django_jobs.tasks_backend.JobsBackend"


def options(**given: Any) -> override_settings:
    return override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": given}})


def stored(result: Any, engine: Engine) -> Job:
    found: Job = Job.objects.using(engine.alias).get(pk=result.id)
    return found


def context_of(claimed: Claimed) -> Context:
    return calling.context_of(claimed, lambda: False, lambda progress: None)


def run(engine: Engine, count: int = 1) -> list[str]:
    """Run what is due, as a worker does; return what each job comes to."""
    found = []
    for claimed in claim(engine, count):
        outcome = Runner(engine, SETTINGS, "host:1").run(claimed, context_of(claimed))
        if outcome.stored is None:
            found.append(store(engine, [Ended(0, claimed, outcome, 0.0)], SETTINGS.max_uncounted)[claimed.id])
        else:
            found.append(outcome.stored)
    return found


@contextmanager
def heard(**more: Any) -> Iterator[list[Any]]:
    """Return what is heard of the framework's signals: name, sender, result; `more` are receivers by name."""
    found: list[Any] = []
    connected = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: type, task_result: Any, name: str = name, **kwargs: Any) -> None:
            found.append((name, sender, task_result))

        for receiver in filter(None, (more.get(name), receive)):
            signal.connect(receiver)
            connected.append((signal, receiver))
    try:
        yield found
    finally:
        for signal, receiver in connected:
            signal.disconnect(receiver)
