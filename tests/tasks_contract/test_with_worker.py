"""What a worker makes of tasks, and what the process that enqueued them sees of it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from tests import harness
from tests.tasks_contract import tasks
from tests.tasks_contract.framework import TaskResultStatus, default_task_backend, task_backends

pytestmark = [
    pytest.mark.process,
    pytest.mark.fast,
    pytest.mark.usefixtures("worker"),
    # No table is emptied between two tests: the worker lives on.
    pytest.mark.django_db(transaction=True, databases="__all__", available_apps=["tests.tasks_contract"]),
]


def finished(result: Any, timeout: float = 30.0) -> Any:
    """Wait until a task is finished; return its result, asked for by its id as well."""

    def ask() -> bool:
        result.refresh()
        return bool(result.is_finished)

    harness.wait_for(ask, timeout, f"{result.task.module_path} is finished, and is {result.status}")
    assert default_task_backend.get_result(result.id) == result
    return result


def running(result: Any) -> Any:
    def ask() -> bool:
        result.refresh()
        return bool(result.status == TaskResultStatus.RUNNING)

    harness.wait_for(ask, what=f"{result.task.module_path} runs")
    return result


def told(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_task_is_run_and_its_return_value_kept() -> None:
    result = finished(tasks.calculate_meaning_of_life.enqueue())
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 42, [])
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at
    assert (result.attempts, len(result.worker_ids)) == (1, 1)
    assert isinstance(result.worker_ids[0], str)
    assert result.worker_ids[0] != ""


def test_an_async_task_is_run() -> None:
    results = [tasks.calculate_slowly.enqueue(), tasks.async_with_context.enqueue("async")]
    assert [finished(result).return_value for result in results] == [42, ["async", 1]]


def test_the_examples_of_the_documentation_run() -> None:
    given: dict[str, Any] = {"emails": ["user@example.com"], "subject": "You have a message", "message": "Hello there!"}
    examples = (tasks.email_users, tasks.email_users_soon, tasks.email_users_with_context)
    results = [example.enqueue(**given) for example in examples]
    assert [finished(result).return_value for result in results] == [1, 1, 1]
    assert finished(tasks.email_users.using(priority=10).enqueue(**given)).return_value == 1


def test_what_json_changes_the_function_gets_changed() -> None:
    result = finished(tasks.double_dictionary.enqueue((1, 2, 3)))
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is TypeError
    assert "unhashable type: 'list'" in result.errors[0].traceback
    assert finished(tasks.double_dictionary.enqueue("a")).return_value == {"a": "aa"}


def test_the_worker_sees_what_the_transaction_committed(database: str) -> None:
    with transaction.atomic(using=database):
        Group.objects.using(database).create(name="1")
        result = tasks.my_task.enqueue(thing_num=1)
    assert finished(result).return_value == "1"


def test_arguments_reach_the_function_as_they_are_in_the_result() -> None:
    result = finished(tasks.echo.enqueue((1, "2"), [None, True, 2.5], deep={"a": [{}]}, word="\N{SNOWMAN}"))
    assert result.return_value == [result.args, result.kwargs]


def test_the_context_has_the_result_as_it_is() -> None:
    result = finished(tasks.seen_from_inside.using(queue_name="emails", priority=5).enqueue("here"))
    assert result.return_value == {
        "word": "here",
        "attempt": 1,
        "id": result.id,
        "status": "RUNNING",
        "args": ["here"],
        "path": "tests.tasks_contract.tasks.seen_from_inside",
        "queue": "emails",
        "priority": 5,
        "backend": "default",
        "started": True,
        "workers": 1,
        "is_finished": False,
    }


@pytest.mark.parametrize(
    ("task", "args", "kind", "said"),
    [
        (tasks.fail, ["bad luck"], tasks.Unlucky, "bad luck"),
        (tasks.fail_with_value_error, [], ValueError, "This task failed"),
        (tasks.leave, [], SystemExit, "SystemExit: 3"),
    ],
    ids=["own", "builtin", "exit"],
)
def test_an_error_is_kept_with_its_class_and_its_traceback(task: Any, args: Any, kind: type, said: str) -> None:
    result = finished(task.enqueue(*args))
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 1, 1)
    assert result.errors[0].exception_class is kind
    assert result.errors[0].exception_class_path == f"{kind.__module__}.{kind.__qualname__}"
    assert result.errors[0].traceback.startswith("Traceback (most recent call last):")
    assert said in result.errors[0].traceback
    assert task.name in result.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_return_value_that_is_no_json_is_an_error() -> None:
    result = finished(tasks.return_no_json.enqueue())
    assert result.status == TaskResultStatus.FAILED
    assert issubclass(result.errors[0].exception_class, TypeError)


def test_a_return_value_is_what_json_makes_of_it() -> None:
    assert finished(tasks.return_tuple.enqueue()).return_value == [1, ["bytes", {"key": [None, 2.5]}]]


def test_a_task_that_is_tried_again_is_ready_with_one_more_error() -> None:
    """A backend that tries nothing again ends it with that error."""
    result = tasks.fail_at_first.enqueue()
    seen: list[tuple[str, int, int]] = []

    def ask() -> bool:
        result.refresh()
        seen.append((str(result.status), len(result.errors), result.attempts))
        return bool(result.is_finished)

    harness.wait_for(ask)
    # While it is ready or runs again, it has the errors and the workers of what was.
    orders = [("READY", 0, 0), ("RUNNING", 0, 1), ("READY", 1, 1), ("RUNNING", 1, 2), ("SUCCESSFUL", 1, 2)]
    assert [item for item in seen if item not in [*orders, ("FAILED", 1, 1)]] == []
    assert seen == sorted(seen, key=[*orders, ("FAILED", 1, 1)].index)
    assert result.errors[0].exception_class is tasks.Unlucky
    if result.status == TaskResultStatus.SUCCESSFUL:
        assert result.return_value == 2
        times: list[Any] = [result.started_at, result.last_attempted_at, result.finished_at]
        assert times == sorted(times)
        assert result.started_at != result.last_attempted_at


def test_a_task_that_runs_is_running(tmp_path: Path) -> None:
    path = tmp_path / "go"
    result = running(tasks.wait_for.enqueue(str(path)))
    with pytest.raises(ValueError, match="has not finished"):
        _ = result.return_value
    assert (result.is_finished, result.finished_at, result.attempts) == (False, None, 1)
    assert result.started_at is not None
    path.touch()
    assert finished(result).return_value == "seen"


def test_a_task_is_not_run_before_its_time() -> None:
    later = tasks.calculate_meaning_of_life.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    soon = tasks.calculate_meaning_of_life.using(run_after=timezone.now() + timedelta(seconds=0.3)).enqueue()
    times: list[Any] = [soon.task.run_after, finished(soon).started_at]
    assert times == sorted(times)
    later.refresh()
    assert later.status == TaskResultStatus.READY


def test_a_result_of_another_backend_of_the_same_kind_is_found() -> None:
    result = tasks.seen_from_inside.using(backend="any_queue").enqueue("there")
    harness.wait_for(lambda: task_backends["any_queue"].get_result(result.id).is_finished)
    assert task_backends["any_queue"].get_result(result.id).return_value["backend"] == "any_queue"


def test_refresh_works_in_async_code() -> None:
    async def run() -> Any:
        result = await tasks.calculate_slowly.aenqueue()
        while not result.is_finished:
            await result.arefresh()
        return result.return_value

    assert asyncio.run(run()) == 42


@pytest.mark.parametrize(("fails", "status"), [(False, "SUCCESSFUL"), (True, "FAILED")])
def test_each_signal_of_the_worker_is_sent_once(tmp_path: Path, fails: bool, status: str, backend_class: str) -> None:
    path = tmp_path / "told"
    result = finished(tasks.told.enqueue(told_in=str(path), fails=fails))
    harness.wait_for(lambda: len(told(path)) >= 2)
    assert [line[:4] for line in told(path)] == [
        ["started", backend_class, result.id, "RUNNING"],
        ["finished", backend_class, result.id, status],
    ]


def test_higher_priorities_run_sooner(tmp_path: Path) -> None:
    """On the whole: a backend may see to it that the low ones have a turn as well."""
    path, go = tmp_path / "order", tmp_path / "go"
    running(held := tasks.wait_for.enqueue(str(go)))
    results = [
        tasks.append.using(priority=priority).enqueue(str(path), f"{priority}")
        for priority in (-50, -50, -50, -50, 50, 50, 50, 50)
    ]
    go.touch()
    for result in [held, *results]:
        finished(result)
    order = path.read_text().split()
    assert sum(number for number, word in enumerate(order) if word == "50") < 14, order
