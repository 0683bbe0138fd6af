"""Running tasks: their ends, atomic ones, and what is told of them."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction

from django_jobs import registry
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.workers.atomic import AtomicRun
from tests.app.models import Effect
from tests.processes.common import with_tables
from tests.tasks import app_tasks as typed
from tests.tasks.common import heard, options, run
from tests.tasks_contract.framework import NAME, TaskResultStatus

# The framework's types know none of our options.
app_tasks: Any = typed
pytestmark = [pytest.mark.fast, with_tables]


def told(signals: list[Any]) -> list[tuple[str, str]]:
    return [(name, str(result.status)) for name, _, result in signals]


def due_again(engine: Engine) -> None:
    Job.objects.using(engine.alias).update(run_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_a_retry_is_no_end_and_the_last_attempt_is(engine: Engine) -> None:
    result = app_tasks.raise_broken.using(max_attempts=2).enqueue("twice")
    statuses = []
    with heard() as signals:
        for end in ("ready", "dead"):
            assert run(engine) == [end]
            due_again(engine)
            result.refresh()
            statuses.append((result.status, result.attempts, len(result.errors)))
    assert statuses == [(TaskResultStatus.READY, 1, 1), (TaskResultStatus.FAILED, 2, 2)]
    assert [name for name, _, _ in signals] == ["started", "started", "finished"]
    finished = signals[-1][2]
    assert (finished.id, finished.status, finished.attempts) == (result.id, TaskResultStatus.FAILED, 2)
    assert finished.started_at < finished.last_attempted_at <= finished.finished_at
    assert [error.exception_class for error in finished.errors] == [app_tasks.Broken, app_tasks.Broken]
    assert "raise_broken" in finished.errors[1].traceback
    assert result.errors[0].traceback == "tests.tasks.app_tasks.Broken: twice"


def test_an_error_of_a_coroutine_is_kept_as_any(engine: Engine) -> None:
    result = app_tasks.raise_asynchronously.using(max_attempts=1).enqueue()
    with heard() as signals:
        assert run(engine) == ["dead"]
    result.refresh()
    (error,) = result.errors
    assert (error.exception_class, "in a coroutine" in error.traceback) == (app_tasks.Broken, True)
    assert told(signals) == [("started", "FAILED"), ("finished", "FAILED")]


def test_an_error_whose_class_cannot_be_imported_is_kept_with_its_path_and_its_traceback(engine: Engine) -> None:
    result = app_tasks.raise_what_nobody_can_import.using(max_attempts=1).enqueue()
    with heard() as signals:
        assert run(engine) == ["dead"]
    result.refresh()
    for (error,) in (result.errors, signals[-1][2].errors):
        assert error.exception_class_path.endswith("app_tasks.raise_what_nobody_can_import.<locals>.Hidden")
        assert "inside" in error.traceback
        with pytest.raises(ImportError):
            _ = error.exception_class


def test_a_return_value_that_is_no_json_is_the_error_of_that_run(engine: Engine) -> None:
    result = app_tasks.return_no_text.using(max_attempts=1).enqueue()
    assert run(engine) == ["dead"]
    result.refresh()
    (error,) = result.errors
    assert (result.status, issubclass(error.exception_class, ValueError)) == (TaskResultStatus.FAILED, True)
    assert "bytes that are not UTF-8" in error.traceback


def test_a_task_may_ask_to_be_tried_again(engine: Engine) -> None:
    result = app_tasks.ask_to_be_tried_again.using(max_attempts=2).enqueue()
    assert run(engine) == ["ready"]
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == ["django_jobs.outcomes.Retry"]


def test_receivers_are_told_within_the_error_and_the_framework_logs_it(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        seen.append(sys.exc_info()[0])

    with caplog.at_level(logging.INFO, NAME.partition(".")[0]), heard(finished=receive):
        app_tasks.raise_broken.enqueue()
        assert run(engine) == ["dead"]
    assert seen == [app_tasks.Broken]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info and record.name.startswith(NAME)] == [
        app_tasks.Broken
    ]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_receiver_that_fails_or_leaves_a_transaction_open_changes_nothing(
    engine: Engine, atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**kwargs: Any) -> None:
        with engine.connection.cursor() as cursor:
            cursor.execute("SELECT * FROM nowhere")

    def leave_open(**kwargs: Any) -> None:
        transaction.atomic(using=engine.alias).__enter__()

    for started in (fail, leave_open):
        with options(atomic=atomic), heard(enqueued=fail, started=started, finished=leave_open):
            with transaction.atomic(using=engine.alias):
                result = app_tasks.nothing.enqueue()
            assert run(engine) == ["done"]
        assert not engine.connection.in_atomic_block
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
    for signal in ("task_started", "task_finished"):
        assert f"A receiver of {signal} left a transaction open on the database {engine.alias!r}" in caplog.text


def test_an_atomic_task_takes_effect_with_the_end_of_its_job(engine: Engine) -> None:
    path = app_tasks.leave_effect.module_path
    with options(tasks={path: {"atomic": True}}, max_attempts=1):
        atomic = app_tasks.leave_effect.enqueue("atomic", engine.alias)
        assert run(engine) == ["dead"]
    with options(max_attempts=1):
        app_tasks.leave_effect.enqueue("plain", engine.alias)
        assert run(engine) == ["dead"]
    assert list(Effect.objects.using(engine.alias).values_list("key", flat=True)) == ["plain"]
    atomic.refresh()
    assert atomic.errors[0].exception_class is app_tasks.Broken


def test_an_atomic_task_that_is_tried_again_in_place_starts_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    monkeypatch.setattr("django_jobs.workers.atomic.is_contention", lambda error: len(tries) < 2)
    called = AtomicRun._called

    def counted(*args: Any) -> Any:
        tries.append(1)
        return called(*args)

    monkeypatch.setattr(AtomicRun, "_called", counted)
    with options(atomic=True, max_attempts=1), heard() as signals:
        app_tasks.raise_broken.enqueue()
        assert run(engine) == ["dead"]
    assert len(tries) == 2
    assert told(signals[1:]) == [("started", "FAILED"), ("finished", "FAILED")]


def test_a_task_is_called_as_a_job_only(engine: Engine) -> None:
    app_tasks.nothing.enqueue()
    found = registry.find(app_tasks.nothing.module_path)
    assert found is not None
    with pytest.raises(Exception, match="none is being run; call the task's own function"):
        found.function()
    assert app_tasks.nothing.call() is None
