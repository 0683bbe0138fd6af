"""Words that the tests of what is watched from outside share."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

from django.core.management import call_command

from django_jobs import registry
from django_jobs.models import Job, Worker
from django_jobs.models.clock import Clock
from tests.app.jobs import nothing
from tests.engines.common import alter

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


class Exited:
    """What a verb of `jobs` printed, and the exit code that it ended with."""

    def __init__(self, *arguments: str) -> None:
        out = StringIO()
        self.code: object = 0
        try:
            call_command("jobs", *arguments, stdout=out)
        except SystemExit as exit_:
            self.code = exit_.code
        self.out = out.getvalue()

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def worker(engine: Engine, **values: Any) -> Worker:
    """Make a live worker that knows all types."""
    given = {"id": "w1", "host": "app1", "pid": 7, "supervisor_pid": 6, "threads": 4, "queues": None}
    found: Worker = Worker.objects.using(engine.alias).create(**{"types": registry.names(), **given, **values})
    return found


def silence(engine: Engine, found: Worker, seconds: float = 120) -> None:
    Worker.objects.using(engine.alias).filter(pk=found.pk).update(heartbeat_at=Clock() - timedelta(seconds=seconds))


def due(engine: Engine, seconds: float, **options: Any) -> Job:
    """Make a job that has been due for so many seconds."""
    job = nothing.using(**options).enqueue()
    alter(engine, job.pk, run_at=Clock() - timedelta(seconds=seconds))
    return job
