"""Words that the tests of what people do to jobs share."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from django_jobs.engines.values import Done, Run
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.engines.common import (
    alter,
    claim,
    claim_one,
    clock,
    enqueue,
    order,
    settled,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

FINAL = ["done", "failed", "dead", "cancelled"]


def in_state(engine: Engine, status: str, **options: Any) -> Job:
    """Return a job that has come to a state as jobs do."""
    job = nothing.using(**options).enqueue(1)
    if status == "parked":
        engine.claim(order(1, types=()))
    elif status == "scheduled":
        alter(engine, job.pk, run_at=clock(engine) + timedelta(hours=1))
    elif status != "ready":
        run = claim_one(engine)
        if status == "done":
            engine.complete([Done(run, '"result"')])
        elif status != "running":
            engine.settle([settled(run, status=status, counts="attempt", error="no", entry=line(run))], 10)
    return job.refresh()


def line(run: Run, cause: str = "raised") -> str:
    return json.dumps({"run": run.token, "cause": cause, "error": "no", "worker": "h:1", "seconds": 0.5})


def acts(job: Job) -> list[tuple[int, str, str]]:
    return [(line["run"], line["cause"], line["error"]) for line in job.history]


class Ran:
    """What a command printed, and the exit code that it ends with."""

    def __init__(self, *arguments: str) -> None:
        out, err = StringIO(), StringIO()
        self.code, self.error = 0, ""
        try:
            call_command("jobs", *arguments, stdout=out, stderr=err)
        except CommandError as error:
            self.code, self.error = error.returncode, str(error)
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def dead(engine: Engine, count: int, **options: Any) -> list[Job]:
    made = enqueue(count, **options)
    for claimed in claim(engine, count):
        engine.settle([settled(claimed.run, status="dead", error="OSError: disk")], 10)
    return made


def age(engine: Engine, job: Job, **spans: Any) -> None:
    alter(engine, job.pk, finished_at=Now() - timedelta(**spans))


def statuses(engine: Engine) -> dict[int, str]:
    return dict(Job.objects.using(engine.alias).order_by("id").values_list("id", "status"))
