"""Words that the tests of acts upon many jobs share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connections
from django.db.models.functions import Now

from django_jobs import bulk
from django_jobs.models import BulkAct, Job
from django_jobs.queue.bulk_step import Stepped, step
from django_jobs.queue.sought import Sought
from tests.app.jobs import nothing

LINE = {"run": 1, "cause": "raised", "error": "Away", "worker": "", "seconds": 0.1, "at": "2030-01-01T00:00:00.000Z"}


def make(alias: str, number: int, status: str = "dead", **values: Any) -> list[int]:
    """Store jobs in a state; return their ids."""
    if status not in ("ready", "running"):
        values = {"finished_at": Now(), **values}
    if status == "running":
        values = {"locked_by": "w:1", "locked_until": Now(), **values}
    values = {
        "type": nothing.name,
        "payload": {"args": [], "kwargs": {}},
        "attempts": 8,
        "token": 1,
        "last_error": "Away",
        "history": [LINE],
        **values,
    }
    made = Job.objects.using(alias).bulk_create([Job(status=status, **values) for _number in range(number)])
    return [job.pk for job in made]


def begin(act: str = "requeue", sought: Sought | None = None, **values: Any) -> BulkAct:
    """Have an act begun by "ada"."""
    wanted = bulk.Wanted(
        act=act, sought=sought or Sought(state="dead-letters"), **{"by": "ada", "why": "it is back", **values}
    )
    found, _made = bulk.begin(wanted, uuid4(), counted=None, is_capped=False)
    return found


def take_step(act: BulkAct, run: int = 1) -> Stepped:
    """Take a step as its job does."""
    act.refresh_from_db()
    return step(str(act._state.db), act.pk, act.job_id or 0, run)


def carry_out(act: BulkAct) -> BulkAct:
    """Take all steps that need no pause; return the act as it is then."""
    while take_step(act).pause == 0:
        pass
    act.refresh_from_db()
    return act


def statuses(alias: str, ids: list[int]) -> list[str]:
    found = dict(Job.objects.using(alias).filter(pk__in=ids).values_list("pk", "status"))
    return [found.get(job_id, "gone") for job_id in ids]


_NUMBERS = {
    "postgresql": "generate_series(1, %s)",
    "sqlite": "(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %s) SELECT n FROM numbers)",
}
_FILL = """
INSERT INTO django_jobs_job (type, queue, payload, status, attempts, token, last_error, history, finished_at,
                             created_at, run_at, meta, priority, key_holds, max_attempts, losses, suspect)
SELECT type, queue, payload, status, attempts, token, last_error, history, finished_at,
       created_at, run_at, meta, priority, key_holds, max_attempts, losses, suspect
  FROM django_jobs_job, {numbers} AS numbers
 WHERE id = %s
"""


def fill(alias: str, number: int) -> None:
    """Store many dead jobs in a queue that nobody serves, quickly."""
    then = Now() - timedelta(hours=1)
    (first,) = make(alias, 1, queue="unserved", last_error="OSError: mail server away", finished_at=then)
    if number > 1:
        with connections[alias].cursor() as cursor:
            cursor.execute(_FILL.format(numbers=_NUMBERS[connections[alias].vendor]), [number - 1, first])


def assert_each_once(alias: str, number: int) -> None:
    """Each job was requeued, and once: its history has one line more than before."""
    jobs = Job.objects.using(alias).filter(queue="unserved")
    assert jobs.filter(status="ready", attempts=0).count() == number
    lines = {len(history) for history in jobs.values_list("history", flat=True).iterator()}
    assert lines == {2}
