"""Tasks as jobs: their types, options, keys and results."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings

from django_jobs import redact, registry
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import DIED
from django_jobs.engines.values import Run
from django_jobs.models import Job
from django_jobs.queue import rescue
from django_jobs.tasks_backend import JobsBackend
from tests.app import jobs
from tests.archive.common import go_round
from tests.processes.common import with_tables
from tests.processes.parts import claim
from tests.tasks import app_tasks as typed
from tests.tasks.common import heard, run, stored
from tests.tasks_contract.framework import (
    NAME,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)

# The framework's types know none of our options.
app_tasks: Any = typed
pytestmark = [pytest.mark.fast, pytest.mark.django_db(databases="__all__")]


# Types.


def test_the_type_of_its_job_is_the_path_of_the_task(engine: Engine) -> None:
    job = stored(
        app_tasks.send.using(priority=5, queue_name="emails").enqueue("ada@example.com", password="1234"), engine
    )
    assert (job.type, job.queue, job.priority) == ("tests.tasks.app_tasks.send", "emails", 5)
    assert job.type in registry.names()
    found = registry.find(job.type)
    assert found is not None
    line = typed.send.func.__code__.co_firstlineno
    assert found.place == f"tests.tasks.app_tasks.send (line {line})"
    assert (job.args, job.kwargs) == (["ada@example.com"], {"password": "1234"})


def test_what_is_secret_is_hidden_by_the_names_of_its_parameters(engine: Engine) -> None:
    job = stored(app_tasks.send.enqueue("ada@example.com", "1234"), engine)
    assert "1234" not in str(redact.job(job).payload)


def test_arguments_that_do_not_fit_the_function_are_refused_before_anything_is_written(engine: Engine) -> None:
    with pytest.raises(TypeError, match=r"do not fit tests\.tasks\.app_tasks\.send"):
        app_tasks.send.enqueue("ada@example.com")
    assert not Job.objects.using(engine.alias).exists()


def test_what_is_nested_too_deep_is_refused_with_the_limit() -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(ValueError, match="nested over 100 deep"):
        app_tasks.nothing.enqueue(deep)


def test_a_function_that_was_defined_again_is_the_one_that_runs(engine: Engine) -> None:
    def again() -> None: ...

    again.__module__, again.__qualname__ = "tests.tasks.app_tasks", "nothing"
    again.__code__ = again.__code__.replace(co_firstlineno=typed.nothing.func.__code__.co_firstlineno)
    made = task(again)
    found = registry.find(made.module_path)
    assert found is not None
    assert inspect.unwrap(found.function) is again
    made.enqueue()


# Refused.


def test_a_time_that_is_a_duration_is_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidTask, match=r"run_after is .*; give a datetime, as timezone.now\(\) \+ timedelta"):
        app_tasks.nothing.using(run_after=timedelta(hours=1))


@pytest.mark.parametrize("priority", ["5", True, float("nan"), None, [5]])
def test_a_priority_that_is_no_number_is_refused_with_what_to_give(priority: Any) -> None:
    with pytest.raises(InvalidTask, match=r"priority is .*; give a whole number from -100 to 100\."):
        task(priority=priority)(app_tasks.nothing.func)


@pytest.mark.parametrize("queue", [None, 5, ["default"]])
def test_a_queue_that_is_no_text_is_refused_with_what_to_give(queue: Any) -> None:
    with pytest.raises(InvalidTask, match=r"queue_name is .*; give text\."):
        task(queue_name=queue)(app_tasks.nothing.func)


def test_above_a_job_it_is_refused_by_what_it_stands_above() -> None:
    with pytest.raises(InvalidTask, match=r"^@task takes a function, and <JobFunction> is none\.$"):
        task(jobs.nothing)


def test_from_an_event_loop_an_enqueue_is_refused_with_what_to_write(engine: Engine) -> None:
    async def enqueue() -> None:
        app_tasks.nothing.enqueue()

    with pytest.raises(TypeError, match=r"inside a running event loop; use `await \.\.\. \.aenqueue"):
        asyncio.run(enqueue())
    assert not Job.objects.using(engine.alias).exists()


def test_a_patch_of_the_frameworks_own_enqueue_sees_ours() -> None:
    """As Sentry's, which is given the task's name and its queue so."""
    assert type(app_tasks.nothing).enqueue is Task.enqueue
    assert type(app_tasks.nothing).aenqueue is Task.aenqueue


def test_a_task_of_another_framework_is_refused() -> None:
    with pytest.raises(InvalidTask, match=f"another framework.*from {NAME} import task"):
        default_task_backend.validate_task(object())


# Keys.


def test_a_key_that_is_taken_gives_the_first_result_and_nothing_is_enqueued(engine: Engine) -> None:
    keyed = app_tasks.nothing.using(idempotency_key="receipt:42")
    with heard() as signals:
        first, second = keyed.enqueue(42), keyed.enqueue(42)
        other = keyed.using(idempotency_key="receipt:43").enqueue(42)
    assert (first.id, first) == (second.id, second)
    assert other.id != first.id
    assert [found.id for _, _, found in signals] == [first.id, other.id]


# Results.


@with_tables
def test_a_result_is_found_in_the_archive_as_well(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    assert run(engine) == ["done"]
    Job.objects.using(engine.alias).update(finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    go_round(engine)
    assert not Job.objects.using(engine.alias).filter(pk=result.id).exists()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_a_job_that_is_no_task_is_no_result(engine: Engine) -> None:
    job = jobs.nothing.enqueue(1)
    with pytest.raises(TaskResultDoesNotExist, match=r"is no task that this process knows.*OPTIONS"):
        default_task_backend.get_result(str(job.pk))


def test_nothing_is_imported_because_a_row_names_it(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    Job.objects.using(engine.alias).update(type="this.s")
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(result.id)


@pytest.mark.parametrize("bad", [None, True, 1.0, b"1", [1], object(), uuid4()], ids=lambda value: type(value).__name__)
def test_an_id_of_any_kind_is_merely_not_there(engine: Engine, bad: Any) -> None:
    result = app_tasks.nothing.enqueue()
    with pytest.raises(TaskResultDoesNotExist, match=r"There is no result .*\."):
        default_task_backend.get_result(bad)
    assert default_task_backend.get_result(int(result.id)) == result


@with_tables
def test_a_result_that_was_deleted_is_not_there_to_be_refreshed(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    Job.objects.using(engine.alias).filter(pk=result.id).delete()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
    with pytest.raises(TaskResultDoesNotExist):
        asyncio.run(result.arefresh())
    assert result.status == TaskResultStatus.READY


def test_without_time_zones_a_time_is_naive_and_comes_back_as_it_was(engine: Engine, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kathmandu"
    try:
        later = datetime(2126, 1, 1, 12)
        result = app_tasks.nothing.using(run_after=later).enqueue()
        assert default_task_backend.get_result(result.id).task.run_after == later
        assert result.enqueued_at is not None
        assert result.enqueued_at.tzinfo is None
        assert default_task_backend.get_result(result.id) == result
    finally:
        settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    assert stored(result, engine).run_at == datetime(2126, 1, 1, 6, 15, tzinfo=UTC)


def test_a_result_is_another_backends_only_by_its_alias(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["any_queue"].get_result(result.id)


def test_what_is_no_longer_valid_is_still_a_result(engine: Engine) -> None:
    result = app_tasks.nothing.using(queue_name="emails").enqueue()
    Job.objects.using(engine.alias).update(queue="elsewhere")
    assert default_task_backend.get_result(result.id).task.queue_name == "elsewhere"


@with_tables
def test_the_time_at_which_it_was_to_run_is_kept_when_that_is_tried_again(engine: Engine) -> None:
    past = datetime(2026, 1, 1, 12, tzinfo=UTC)
    result = app_tasks.raise_broken.using(run_after=past, max_attempts=2).enqueue()
    assert run(engine) == ["ready"]
    result.refresh()
    assert default_task_backend.get_result(result.id).task.run_after == past


def test_a_cancelled_task_failed(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    stored(result, engine).cancel(why="a mistake", by="ada")
    result.refresh()
    (error,) = result.errors
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 0)
    assert (error.exception_class_path, error.traceback) == ("django_jobs.outcomes.Cancel", "by ada: a mistake")
    assert issubclass(error.exception_class, BaseException)


@with_tables
def test_a_task_whose_worker_was_lost_is_ready_again_with_one_more_error(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    (claimed,) = claim(engine, 1, "inc:1")
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.RUNNING, ["inc"])
    lost = [(Run(claimed.id, claimed.token, claimed.locked_by), 1.0)]
    rescue.lose(
        engine, lost, cause=DIED, error="killed by signal 9", worker="host:1", witnessed=False, max_uncounted=10
    )
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.READY, ["host:1"])
    assert [(error.exception_class_path, error.traceback) for error in result.errors] == [
        ("django_jobs.exceptions.JobsError", "killed by signal 9")
    ]
    assert run(engine) == ["done"]
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.SUCCESSFUL, ["host:1", "run:2"])


def test_of_many_runs_all_are_counted_although_not_all_are_kept(engine: Engine) -> None:
    result = app_tasks.nothing.enqueue()
    kept = [
        {"run": run, "cause": "raised", "error": "KeyError: 1", "worker": f"host:{run}"} for run in (1, *range(4, 13))
    ]
    Job.objects.using(engine.alias).update(history=kept, token=12)
    result.refresh()
    assert (result.attempts, len(result.errors)) == (12, 10)
    assert result.worker_ids[:4] == ["host:1", "run:2", "run:3", "host:4"]


@with_tables
def test_the_backend_may_be_made_from(engine: Engine) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{__name__}.Own", "QUEUES": []}}), heard() as signals:
        app_tasks.nothing.enqueue()
        assert run(engine) == ["done"]
    assert [(name, sender) for name, sender, _ in signals] == [("enqueued", Own), ("started", Own), ("finished", Own)]


class Own(JobsBackend):
    pass
