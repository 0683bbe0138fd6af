"""One run of an atomic job, made in the test's own process as a worker's thread and its writer make it."""

from __future__ import annotations

import time
from typing import Any

from django_jobs import JobFunction
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Done, Settlement
from django_jobs.models import Job
from django_jobs.workers import ended
from django_jobs.workers.executor import Assigned
from django_jobs.workers.runner import Runner
from tests.app.models import Effect
from tests.processes.parts import Tables, claim


class Case:
    def __init__(self, engine: Engine, function: JobFunction[..., Any, Any], *arguments: Any, **settings: Any) -> None:
        """Enqueue and claim a job. What `settings` has of `timeout` is the job's, all else the worker's."""
        self.engine = engine
        function = function.using(timeout=settings.pop("timeout")) if "timeout" in settings else function
        self.tables = Tables(engine, **settings)
        self.job = function.enqueue(*arguments)
        (self.claimed,) = claim(engine, 1, f"{self.tables.child.incarnation}:1")
        self.tables.seat([self.claimed])
        self.worker = self.tables.worker()
        self.outcome: Done | Settlement | None = None

    def run(self) -> Case:
        """Run it, and store and account what came of it, unless that is stored already."""
        executor = self.worker._executor
        executor._watcher.start()
        settings = self.tables.plan.settings
        runner = Runner(self.engine, settings, "host:1", self.worker._writer.reported)
        end = executor._run(runner, Assigned(0, self.claimed, time.monotonic()), 0)
        self.outcome = end.outcome
        if end.outcome.stored is None:
            statuses = ended.store(self.engine, [end], settings.max_uncounted)
        else:
            statuses = {self.claimed.id: end.outcome.stored}
        ended.account(self.tables.region, [end], statuses)
        return self

    @property
    def stored(self) -> str | None:
        assert self.outcome is not None
        return self.outcome.stored

    @property
    def row(self) -> Job:
        found: Job = Job.objects.using(self.engine.alias).get(pk=self.claimed.id)
        return found

    @property
    def came_to(self) -> tuple[str, int, int, list[str]]:
        """Return status, attempts, losses, and the causes of the runs that did not succeed."""
        row = self.row
        return row.status, row.attempts, row.losses, [line["cause"] for line in row.history]

    @property
    def counted(self) -> dict[str, int]:
        return {name: number for name, number in self.tables.region.counters().items() if number}


def effects(engine: Engine) -> list[str]:
    return sorted(Effect.objects.using(engine.alias).values_list("key", flat=True))
