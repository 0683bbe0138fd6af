from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs.engines.base import ClaimOrder, Engine, Run, Settlement
from django_jobs.models import Job, Worker
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
TYPE = nothing.name


def worker(engine: Engine, **changes: Any) -> Worker:
    values = {"id": "w", "host": "host", "pid": 7, "supervisor_pid": 6, "types": [TYPE], "threads": 4, **changes}
    return Worker.objects.using(engine.alias).create(**values)


def claim(engine: Engine, lease: float = 30) -> None:
    order = ClaimOrder(locked_by="w:1", lease=lease, limit=10, queues=None, types=(TYPE,))
    assert engine.claim(order).jobs


def settle(engine: Engine, job: Job, status: str, counts: Any, error: str, delay: float | None = None) -> None:
    claim(engine)
    job.refresh()
    entry = json.dumps({"run": job.token, "cause": "raised", "error": error, "worker": "host:7", "seconds": 1})
    run = Job.objects.using(engine.alias).values_list("id", "token", "locked_by").get(pk=job.pk)
    engine.settle([Settlement(Run(*run), status, counts, "raised", delay=delay, error=error, entry=entry)], 10)


def test_a_due_job_without_workers_says_that_none_runs(engine: Engine) -> None:
    assert "but no worker is running: start `manage.py runworkers`" in nothing.enqueue().explain()


def test_a_job_in_a_queue_that_nobody_serves_says_so(engine: Engine) -> None:
    worker(engine, queues=["mail"])
    assert "none of the 1 live workers serves the queue 'default'" in nothing.enqueue().explain()


def test_a_job_of_a_type_that_nobody_knows_says_so(engine: Engine) -> None:
    worker(engine, types=["other"])
    assert f"no live worker that serves the queue 'default' knows the type '{TYPE}'" in nothing.enqueue().explain()


def test_a_silent_worker_does_not_count_as_live(engine: Engine) -> None:
    worker(engine)
    Worker.objects.using(engine.alias).update(heartbeat_at=Now() - timedelta(seconds=31))
    assert "no worker is running" in nothing.enqueue().explain()


def test_a_parked_job_says_who_parked_it_and_who_will_take_it(engine: Engine) -> None:
    job = nothing.enqueue()
    engine.claim(ClaimOrder(locked_by="old:1", lease=30, limit=1, queues=None, types=("other",)))
    worker(engine)
    assert "a worker without the type" in job.explain()


def test_a_job_that_others_are_ahead_of_says_how_many(engine: Engine) -> None:
    worker(engine)
    nothing.using(priority=5).enqueue()
    nothing.using(queue="other", priority=5).enqueue()
    assert "1 due jobs are before it in its queue, 1 live workers serve it" in nothing.enqueue().explain()


def test_a_future_job_says_when_it_is_due(engine: Engine) -> None:
    assert nothing.using(delay=3 * 3600).enqueue().explain() == "The first run is due in 3 h."


def test_a_retry_says_which_attempt_waits_and_why(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "ValueError: no", delay=600)
    assert job.explain() == ("Attempt 2 of 8 is due in 10 min; the last run ended as 'raised': ValueError: no.")


def test_a_streak_of_the_same_end_is_counted(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "no")
    settle(engine, job, "ready", "attempt", "no", delay=600)
    assert "ended as 'raised', 2 times in a row" in job.explain()


def test_a_running_job_says_where_it_runs_and_for_how_long_it_is_leased(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    claim(engine)
    sentence = job.explain()
    assert "on host:7 (run 1), leased for another" in sentence


def test_a_running_job_with_a_silent_worker_says_so(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    claim(engine)
    Worker.objects.using(engine.alias).update(heartbeat_at=Now() - timedelta(seconds=25))
    assert "the worker is silent for 25 s" in job.explain()


def test_a_running_job_whose_lease_ran_out_says_so(engine: Engine) -> None:
    job = nothing.enqueue()
    claim(engine)
    Job.objects.using(engine.alias).update(locked_until=Now() - timedelta(seconds=5))
    assert "its lease ran out 5" in job.explain()
    assert "gone or has not said it is there" in job.explain()


@pytest.mark.parametrize(
    ("status", "counts", "says"),
    [
        ("failed", "end", "Failed for good"),
        ("dead", "attempt", "Dead after 1 of 8 attempts and 0 losses in a row,"),
        ("cancelled", "end", "Cancelled"),
    ],
)
def test_an_ended_job_says_how_and_why(engine: Engine, status: str, counts: str, says: str) -> None:
    job = nothing.enqueue()
    settle(engine, job, status, counts, "Traceback...\nOSError: disk")
    assert job.explain().startswith(says)
    assert job.explain().endswith("OSError: disk")


def test_a_deleted_job_says_that_it_is_gone(engine: Engine) -> None:
    job = nothing.enqueue()
    pk = job.pk
    Job.objects.using(engine.alias).all().delete()
    assert job.explain() == f"Job {pk} is gone: it was deleted."
