"""Tasks as jobs: their types, options, keys and results."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import Backoff, redact, registry
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
from tests.tasks.common import OURS, heard, options, run
from tests.tasks_contract.framework import (
    NAME,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)

# The framework's types know none of our options.
app_tasks: Any = typed
pytestmark = [pytest.mark.fast, pytest.mark.django_db(databases="__all__")]


def stored(result: Any, engine: Engine) -> Job:
    found: Job = Job.objects.using(engine.alias).get(pk=result.id)
    return found


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


# Options.


@pytest.mark.usefixtures("engine")
def test_options_of_the_backend_are_for_all_and_those_of_a_path_come_first(engine: Engine) -> None:
    default, by_path = stored(app_tasks.nothing.enqueue(), engine), stored(app_tasks.by_path.enqueue(), engine)
    assert (default.max_attempts, default.timeout) == (1, 900.0)
    assert (by_path.max_attempts, by_path.timeout) == (7, 11.0)
    plain = stored(app_tasks.by_path.using(backend="any_queue").enqueue(), engine)
    assert (plain.max_attempts, plain.timeout) == (8, 900.0)


def test_an_enqueue_may_say_more(engine: Engine) -> None:
    later = datetime(2126, 1, 1, tzinfo=UTC)
    changed = app_tasks.by_path.using(
        max_attempts=3, timeout=None, expires=later, idempotency_key="one", unique="unfinished"
    )
    job = stored(changed.using(priority=1).enqueue(), engine)
    assert (job.max_attempts, job.timeout, job.expires_at, job.priority) == (3, None, later, 1)
    assert (job.idempotency_key, job.key_holds) == ("one", "unfinished")
    assert stored(app_tasks.by_path.enqueue(), engine).max_attempts == 7


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"attempts": 3}, TypeError, "no option 'attempts'; it has .*max_attempts"),
        ({"atomic": True}, TypeError, "no option 'atomic'"),
    ],
)
def test_an_option_that_is_unknown_is_refused(changes: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        app_tasks.nothing.using(**changes)


@pytest.mark.skipif(not app_tasks.with_own_options, reason="@task takes no more options on Django 6.0")
def test_a_task_has_options_of_its_own(engine: Engine) -> None:
    made = task(
        max_attempts=4, timeout=timedelta(minutes=1), backoff=Backoff(base=7), fail_on=[KeyError], tags=["mail"]
    )(app_tasks.nothing.func)
    with options(max_attempts=2, durable=True, tasks={made.module_path: {"max_attempts": 3, "backoff": (1, 2, 3)}}):
        job, found = stored(made.enqueue(), engine), registry.find(made.module_path)
        assert stored(made.using(max_attempts=5).enqueue(), engine).max_attempts == 5
    assert (job.max_attempts, job.timeout, job.tags) == (4, 60.0, ["mail"])
    assert found is not None
    assert (found.backoff, found.fail_on, found.durable) == (Backoff(base=7), (KeyError,), True)


def test_three_numbers_are_a_backoff(engine: Engine) -> None:
    with options(backoff=[1, 2, 3]):
        app_tasks.nothing.enqueue()
        found = registry.find(app_tasks.nothing.module_path)
    assert found is not None
    assert found.backoff == Backoff(base=1, factor=2, cap=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "OPTIONS is 'text'; give a dict"),
        ({"attempts": 3}, "OPTIONS has no option 'attempts'; it has .*max_attempts.*tasks"),
        ({"max_attempts": 0}, "OPTIONS: max_attempts is 0; give a whole number"),
        ({"idempotency_key": "x"}, "OPTIONS has no option 'idempotency_key'"),
        ({"backoff": [1, 2]}, r"OPTIONS: backoff is \[1, 2\]"),
        ({"tasks": ["a.b"]}, r"OPTIONS\['tasks'\] is .*; give a dict"),
        ({"tasks": {"a.b": {"timeout": -1}}}, r"OPTIONS\['tasks'\]\['a.b'\]: timeout is -1"),
        ({"tasks": {"a.b": {"tasks": {}}}}, r"OPTIONS\['tasks'\]\['a.b'\] has no option 'tasks'"),
        ({"modules": "shop.mail"}, r"OPTIONS\['modules'\] is 'shop.mail'; give a list"),
    ],
)
def test_options_that_cannot_be_used_are_refused_and_found_by_the_check(given: Any, said: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "OPTIONS": given}}):
        (found,) = default_task_backend.check()
        with pytest.raises(InvalidTask, match=said):
            app_tasks.nothing.enqueue()
    assert found.id == "django_jobs.E011"
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found.msg)


def test_an_async_task_cannot_be_atomic() -> None:
    with (
        options(atomic=True),
        pytest.raises(InvalidTask, match="asynchronous is an async function, which cannot be atomic"),
    ):
        app_tasks.asynchronous.using(priority=1)


@pytest.mark.parametrize("queue", ["", "a queue", "a,b"])
def test_a_queue_that_jobs_cannot_have_is_refused(queue: str) -> None:
    with pytest.raises(InvalidTask, match="queue name"):
        app_tasks.nothing.using(backend="any_queue", queue_name=queue)


def test_a_time_that_is_a_duration_is_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidTask, match=r"run_after is .*; give a datetime, as timezone.now\(\) \+ timedelta"):
        app_tasks.nothing.using(run_after=timedelta(hours=1))


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
