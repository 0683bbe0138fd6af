"""IMMEDIATE: jobs run where they are enqueued, as soon as their transaction has ended."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.test import TestCase, override_settings
from django.test.utils import _TestState

from django_jobs.conf import conf
from django_jobs.engines.base import Engine
from django_jobs.testing import enqueued, immediate, run_jobs
from tests.harness import Tree
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, committed, effects


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


@alone
def test_outside_of_tests_it_is_not_heeded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with immediate(), monkeypatch.context() as changed:
        changed.delattr(_TestState, "saved_data")
        assert jobs.step.enqueue("x").refresh().status == "ready"
    assert enqueued(jobs.step)


WORKERS = """
import django
django.setup()
from django.core.management import call_command
from django.test.utils import setup_test_environment
from tests.testing import kit_jobs
setup_test_environment()
call_command("runworkers", burst=True, processes=1, no_scheduler=True, verbosity=0)
assert kit_jobs.enqueue_and_look.enqueue("in place").refresh().status == "done"
"""


@pytest.mark.process
@committed
@pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)
def test_workers_leave_what_their_jobs_enqueue_to_be_claimed_also_when_a_test_runs_them(tree: Tree) -> None:
    job = jobs.enqueue_and_look.enqueue("x")
    environment = tree.environment({"IMMEDIATE": True, "THREADS": 1})
    ran = subprocess.run([sys.executable, "-c", WORKERS], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert (job.refresh().status, enqueued()) == ("done", [])
    assert job.result in ("ready", "running")  # the one thread has yet to start it


def test_a_decorator_keeps_the_settings_that_are_true_when_it_is_entered() -> None:
    decorated = immediate()
    with override_settings(DJANGO_JOBS={"THREADS": 3}), decorated:
        assert (conf().threads, conf().immediate) == (3, True)


@immediate()
class InATestCase(TestCase):
    databases = {"default"}

    def test_as_a_decorator(self) -> None:
        assert jobs.step.enqueue("x").refresh().status == "done"
