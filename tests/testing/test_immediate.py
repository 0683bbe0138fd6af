"""IMMEDIATE: jobs run where they are enqueued, as soon as their transaction has ended."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections, transaction
from django.test import TestCase

from django_jobs.engines.base import Engine
from django_jobs.testing import immediate, run_jobs
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, effects


def test_a_job_is_run_at_once_outside_of_a_transaction(both: bool, engine: Engine) -> None:
    with immediate():
        job = jobs.leave_atomically.enqueue("x")
        assert effects(engine) == ["x", "x follows"]
        assert job.refresh().status == "done"
        jobs.leave.enqueue_many([jobs.leave.call("y"), jobs.leave.call("z")])
        jobs.leave.using(idempotency_key="k").enqueue("k")
    assert effects(engine)[2:] == ["y", "z", "k"]
    jobs.leave.enqueue("later")
    assert effects(engine)[5:] == []


def test_a_job_is_run_when_the_transaction_that_enqueues_it_has_ended(both: bool, engine: Engine) -> None:
    with immediate():
        with transaction.atomic(using=engine.alias):
            with transaction.atomic(using=engine.alias):
                jobs.leave.enqueue("x")
            assert effects(engine) == []
        assert effects(engine) == ["x"]
        with transaction.atomic(using=engine.alias):
            jobs.leave.enqueue("y")
            transaction.set_rollback(True, using=engine.alias)
        with transaction.atomic(using=engine.alias):
            pass
        assert effects(engine) == ["x"]
        assert "savepoint_commit" not in vars(connections[engine.alias])


@alone
def test_what_a_job_raises_is_a_retry_and_not_the_callers_error(engine: Engine) -> None:
    with immediate():
        job = jobs.fail_before.enqueue(2)
        jobs.leave.using(delay=5).enqueue("later")
    assert (job.refresh().status, job.attempts) == ("ready", 1)
    assert [one.status for one in run_jobs(ahead=timedelta(hours=1))] == ["done", "done"]


@immediate()
class InATestCase(TestCase):
    databases = {"default"}

    def test_as_a_decorator(self) -> None:
        assert jobs.step.enqueue("x").refresh().status == "done"
