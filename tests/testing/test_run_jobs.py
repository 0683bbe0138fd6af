"""Running jobs in a test: what is due, in order, by the code of the workers, in the transaction of a TestCase."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connections, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from django_jobs import JobsError, pause, signals
from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models import Job
from django_jobs.testing import advance, assert_enqueued, driver, run_jobs
from tests.app.jobs import fail_until, nothing, report
from tests.app.models import Ruled
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, effects, told
from tests.testing.kit_jobs import leave_count


def test_what_is_due_is_run_in_order_and_returned(both: bool, engine: Engine) -> None:
    jobs.leave.enqueue("low")
    jobs.leave_atomically.using(priority=5).enqueue("high")
    jobs.leave.using(delay=60).enqueue("later")
    ran = run_jobs()
    assert told(ran) == [("leave_atomically", "done", 1), ("leave", "done", 1), ("leave", "done", 1)]
    assert effects(engine) == ["high", "low", "high follows"]
    assert (ran[0].job.result, ran[0].job.progress) == ("high", {"done": 1, "total": 2, "note": "half"})
    assert run_jobs() == []


@alone
def test_what_a_job_raises_is_stored_and_raised(engine: Engine) -> None:
    jobs.fail_before.enqueue(2)
    with pytest.raises(LookupError, match="attempt 1") as raised:
        run_jobs()
    assert "which is ready now" in raised.value.__notes__[0]
    (job,) = Job.objects.using(engine.alias).all()
    assert (job.status, job.attempts, effects(engine)) == ("ready", 1, ["tried"])
    assert "LookupError: attempt 1" in job.last_error


@alone
def test_retries_are_followed_by_moving_the_clock_to_them(engine: Engine) -> None:
    jobs.fail_before.enqueue(3)
    jobs.end.enqueue("snooze")
    ran = run_jobs(ahead=timedelta(hours=3), raise_errors=False)
    assert told(ran) == [
        ("fail_before", "ready", 1),
        ("end", "ready", 1),
        ("fail_before", "ready", 2),
        ("fail_before", "done", 3),
        ("end", "ready", 2),
    ]
    assert [(one.cause, one.error) for one in ran[:2]] == [("raised", "LookupError: attempt 1"), ("snoozed", "Snooze")]


@alone
def test_a_retry_waits_for_all_of_its_backoff_and_a_suspect_for_its_turn(engine: Engine) -> None:
    job = jobs.fail_before.enqueue(2)
    run_jobs(raise_errors=False)
    assert_enqueued(jobs.fail_before, delay=timedelta(minutes=10))
    Job.objects.using(engine.alias).filter(pk=job.pk).update(parked="suspect", losses=2)
    assert run_jobs(ahead=timedelta(minutes=9)) == []
    assert told(run_jobs(ahead=timedelta(minutes=2))) == [("fail_before", "done", 2)]


@alone
def test_outcomes_are_no_errors(engine: Engine) -> None:
    for how in ("retry", "snooze", "fail"):
        jobs.end.enqueue(how)
    assert [(one.status, one.cause) for one in run_jobs()] == [
        ("ready", "retry"),
        ("ready", "snoozed"),
        ("failed", "failed"),
    ]


def test_an_atomic_job_that_raises_leaves_nothing_and_its_test_goes_on(both: bool, engine: Engine) -> None:
    jobs.leave_atomically.enqueue("a", error="no")
    assert told(run_jobs(raise_errors=False)) == [("leave_atomically", "ready", 1)]
    assert (effects(engine), Job.objects.using(engine.alias).count()) == ([], 1)


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_broken_rule_of_the_database_is_the_error_of_its_job_alone(
    both: bool, engine: Engine, swallowed: bool
) -> None:
    jobs.break_a_rule.enqueue("first", swallowed)
    jobs.leave.enqueue("second")
    statuses = [one.status for one in run_jobs(raise_errors=False)]
    assert statuses == ["done" if swallowed else "ready", "done"]
    # Within one transaction PostgreSQL has nothing left of it: docs/testing.md.
    lost = not both and engine.name == "postgresql"
    assert effects(engine) == (["second"] if lost else ["first", "second"])


def test_a_rule_that_is_checked_at_the_commit_is_checked(both: bool, engine: Engine) -> None:
    jobs.break_a_rule_at_the_end.enqueue("x")
    with pytest.raises((IntegrityError, JobsError), match=r"(?i)foreign key"):
        run_jobs()
    assert (effects(engine), Job.objects.using(engine.alias).get().attempts) == ([], 1)
    if not both:
        # It is deferred again, for what the test itself does.
        Ruled.objects.using(engine.alias).create(name="y", other_id=-1).delete()


def test_a_transaction_left_open_fails_its_run_and_is_rolled_back(both: bool, engine: Engine) -> None:
    jobs.leave_open.enqueue("open")
    (ran,) = run_jobs(raise_errors=False)
    assert (ran.status, ran.cause) == ("ready", "raised")
    assert "with a transaction open" in ran.error
    assert effects(engine) == []
    with pytest.raises(JobsError, match="did not end well"):
        run_jobs(ahead=timedelta(hours=1))


@pytest.mark.parametrize("error", [False, True])
def test_hooks_of_a_commit_are_called_in_a_testcase_as_outside_of_one(both: bool, engine: Engine, error: bool) -> None:
    jobs.enqueue_when_committed.enqueue("after", error)
    ran = run_jobs(raise_errors=False)
    assert told(ran) == [("enqueue_when_committed", "ready" if error else "done", 1), ("leave", "done", 1)]
    assert not connections[engine.alias].run_on_commit


def test_effects_and_async_handlers_work_as_in_a_worker(both: bool, engine: Engine, mailoutbox: list[Any]) -> None:
    first = [jobs.leave_once.enqueue("x") for _ in range(2)]
    jobs.ask.enqueue("ada@example.com")
    jobs.leave_async.enqueue("async")
    reports = report.enqueue(2)
    run_jobs()
    assert reports.refresh().progress == {"done": 2, "total": 2, "note": "step 2"}
    assert [job.refresh().result for job in first] == [True, False]
    assert [message.to for message in mailoutbox] == [["ada@example.com"]]
    assert effects(engine) == ["x", "async", "async follows"]


@alone
def test_a_run_is_told_of_its_job_as_by_a_worker(engine: Engine) -> None:
    job = jobs.describe_itself.using(queue="mail").enqueue("x", number=2)
    run_jobs()
    assert job.refresh().result == [jobs.describe_itself.name, "mail", {"key": "x", "number": 2}]


@alone
def test_a_job_that_is_cancelled_while_it_runs_is_told_so(engine: Engine) -> None:
    job = jobs.cancelled_by_itself.enqueue()
    assert [one.status for one in run_jobs()] == ["cancelled"]
    assert job.refresh().result is True


@alone
def test_a_job_that_expired_is_cancelled_and_not_run(engine: Engine) -> None:
    jobs.leave.using(expires=60, delay=30).enqueue("x")
    advance(timedelta(minutes=2))
    assert [(one.status, one.cause) for one in run_jobs()] == [("cancelled", "expired")]
    assert effects(engine) == []


@alone
def test_only_the_types_and_queues_asked_for_are_run_and_the_rest_waits_as_before(engine: Engine) -> None:
    nothing.enqueue(1)
    jobs.leave.enqueue("default")
    jobs.leave.using(queue="mail").enqueue("mail")
    assert told(run_jobs(types=[jobs.leave], queues=["mail"])) == [("leave", "done", 1)]
    assert told(run_jobs(types=[jobs.leave])) == [("leave", "done", 1)]
    assert set(Job.objects.using(engine.alias).ready().values_list("type", "parked")) == {(nothing.name, None)}
    pause(type=nothing.name)
    assert run_jobs() == []


@alone
def test_as_many_are_run_as_asked_for_and_a_circle_is_found(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MOST_RUNS", 10)
    jobs.again.enqueue()
    assert len(run_jobs(most=3)) == 3
    with pytest.raises(JobsError, match=r"10 jobs were run, the last of them of .*again, and it may go on"):
        run_jobs()


@alone
def test_what_cannot_be_meant_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidJob, match="most=0"):
        run_jobs(most=0)
    with pytest.raises(InvalidJobType, match="ahead=5"):
        run_jobs(ahead=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobType, match="queues='mail'"):
        run_jobs(queues="mail")
    with pytest.raises(InvalidJob, match="queue"):
        run_jobs(queues=[5])  # type: ignore[list-item]
    with transaction.atomic(using=engine.alias), pytest.raises(JobsError, match="inside a transaction"):
        run_jobs()

    async def inside() -> None:
        run_jobs()

    with pytest.raises(InvalidJobType, match="sync_to_async"):
        async_to_sync(inside)()


@alone
def test_attempts_run_out_as_with_a_worker(engine: Engine) -> None:
    fail_until.enqueue(9)
    assert [one.status for one in run_jobs(ahead=timedelta(seconds=1), raise_errors=False)] == [
        "ready",
        "ready",
        "dead",
    ]


@alone
def test_the_connection_of_the_test_stays_with_its_settings_and_the_queries_that_are_counted(engine: Engine) -> None:
    connection = connections[engine.alias]
    jobs.leave_atomically.enqueue("a")
    jobs.fail_before.enqueue(2)
    raw = connection.connection
    with CaptureQueriesContext(connection) as queries:
        leave_count("before")
        run_jobs(raise_errors=False, ahead=timedelta(hours=1))
    assert "before" in queries[0]["sql"]
    assert connection.connection is raw
    if engine.name == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')"
            )
            assert cursor.fetchone() == ("0", "0")


class InATestCase(TestCase):
    """The same with unittest's own, twice, so that what one test leaves would be met by the other."""

    databases = {"default"}

    @classmethod
    def setUpTestData(cls) -> None:
        jobs.leave.enqueue("of the class")

    def test_one(self) -> None:
        jobs.leave_atomically.enqueue("mine")
        assert [one.status for one in run_jobs()] == ["done", "done", "done"]
        jobs.break_a_rule.enqueue("x")
        with pytest.raises(IntegrityError):
            run_jobs()

    test_two = test_one


@alone
def test_signals_are_sent_of_what_runs(engine: Engine) -> None:
    sent: list[tuple[Any, ...]] = []

    def hear(signal: Any, job_id: int, attempt: int, status: str = "started", **given: Any) -> None:
        sent.append((job_id, attempt, status))

    heard = (signals.job_started, signals.job_retrying, signals.job_finished)
    for signal in heard:
        signal.connect(hear)
    try:
        job = jobs.fail_before.enqueue(2)
        run_jobs(raise_errors=False, ahead=timedelta(hours=1))
    finally:
        for signal in heard:
            signal.disconnect(hear)
    assert sent == [(job.pk, 1, "started"), (job.pk, 1, "ready"), (job.pk, 2, "started"), (job.pk, 2, "done")]
