"""What is true of a task before any worker has seen it."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import django
import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from tests.tasks_contract.framework import (
    NAME,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.tasks_contract.tasks import (
    calculate_meaning_of_life,
    calculate_slowly,
    echo,
    email_users,
    email_users_soon,
    email_users_with_context,
    process_data,
)

pytestmark = [
    pytest.mark.fast,
    pytest.mark.django_db(databases="__all__"),
    pytest.mark.usefixtures("database"),
]
# Other threads, or hooks of a commit, have a part in it.
committed = pytest.mark.django_db(transaction=True, databases="__all__", available_apps=["django_jobs"])
ROOT = Path(__file__).parent.parent.parent


def is_there(result: Any) -> bool:
    try:
        return default_task_backend.get_result(result.id) is not None
    except TaskResultDoesNotExist:
        return False


@pytest.fixture
def sent() -> Iterator[list[tuple[str, type, str]]]:
    """Return what is heard of each signal: its name, its sender, the id of the result."""
    found: list[tuple[str, type, str]] = []
    receivers = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: type, task_result: Any, name: str = name, **kwargs: Any) -> None:
            found.append((name, sender, task_result.id))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield found
    for signal, receive in receivers:
        signal.disconnect(receive)


# Definition.


def test_the_decorator_makes_a_task_of_the_framework() -> None:
    assert isinstance(email_users, Task)
    assert (email_users.priority, email_users.queue_name, email_users.backend) == (0, "default", "default")
    assert (email_users.run_after, email_users.takes_context, email_users.name) == (None, False, "email_users")
    assert email_users.module_path == "tests.tasks_contract.tasks.email_users"
    assert (email_users_soon.priority, email_users_soon.queue_name) == (2, "emails")
    assert email_users_with_context.takes_context


def test_a_backend_says_that_it_can_do_all() -> None:
    backend = default_task_backend
    able = backend.supports_defer, backend.supports_async_task, backend.supports_get_result, backend.supports_priority
    assert able == (True, True, True, True)
    assert list(backend.check()) == []


def test_using_changes_a_copy() -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = email_users.using(priority=10, queue_name="emails", run_after=later, backend="any_queue")
    assert (changed.priority, changed.queue_name, changed.run_after, changed.backend) == (
        10,
        "emails",
        later,
        "any_queue",
    )
    assert (email_users.priority, email_users.queue_name, email_users.run_after) == (0, "default", None)
    assert changed.func is email_users.func
    assert type(changed) is type(email_users)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 101},
        {"priority": -101},
        {"priority": 1.5},
        {"queue_name": "nobody serves this"},
        {"run_after": datetime(2026, 1, 1)},
    ],
    ids=str,
)
def test_what_a_backend_cannot_do_is_refused_when_it_is_asked_for(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask):
        email_users.using(**changes)


def test_a_task_is_a_function_of_a_module_and_names_its_context() -> None:
    def inner() -> None: ...

    for function, options in ((inner, {}), (print, {}), (process_data.func, {"takes_context": True})):
        with pytest.raises(InvalidTask):
            task(**options)(function)


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_the_limits_of_the_priority_are_allowed(priority: int) -> None:
    assert calculate_meaning_of_life.using(priority=priority).enqueue().task.priority == priority


def test_without_a_list_of_queues_any_queue_is_valid() -> None:
    result = calculate_meaning_of_life.using(backend="any_queue", queue_name="whatever").enqueue()
    assert task_backends["any_queue"].get_result(result.id).task.queue_name == "whatever"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_task_may_be_defined_before_there_are_models(tmp_path: Path) -> None:
    app = tmp_path / "early"
    app.mkdir()
    (app / "__init__.py").write_text(f"from {NAME} import task\n@task(priority=3)\ndef early(): pass\n")
    (tmp_path / "early_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = ['early', *INSTALLED_APPS]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import django; django.setup(); import early; print(early.early.module_path)"],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "early_settings",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("early.early\n", 0), done.stderr


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks are pickled from Django 6.1 on")
def test_tasks_and_results_are_pickled() -> None:
    changed = email_users.using(priority=10, queue_name="emails")
    assert pickle.loads(pickle.dumps(changed)) == changed
    result = calculate_meaning_of_life.enqueue()
    assert pickle.loads(pickle.dumps(result)) == result


# Enqueueing.


def test_an_enqueue_returns_what_get_result_finds(database: str) -> None:
    before = timezone.now() - timedelta(minutes=1)
    result = email_users.enqueue(emails=["user@example.com"], subject="You have a message", message="Hello there!")
    assert isinstance(result, TaskResult)
    assert isinstance(result.id, str)
    assert 0 < len(result.id) < 64
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.args, result.errors, result.worker_ids, result.backend) == ([], [], [], "default")
    assert result.kwargs == {"emails": ["user@example.com"], "subject": "You have a message", "message": "Hello there!"}
    assert before < result.enqueued_at < timezone.now() + timedelta(minutes=1)
    assert result.task == email_users
    assert email_users.get_result(result.id) == result
    assert default_task_backend.get_result(result.id) == result
    with pytest.raises(ValueError, match="has not finished"):
        _ = result.return_value


def test_a_result_has_the_task_as_it_was_enqueued() -> None:
    later = datetime(2126, 1, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    changed = email_users.using(priority=-7, queue_name="emails", run_after=later)
    result = changed.enqueue([], "", "")
    assert result.task == changed
    assert email_users.get_result(result.id).task == changed


@committed
def test_it_is_enqueued_and_found_from_async_code() -> None:
    async def both() -> Any:
        result = await calculate_slowly.aenqueue()
        await result.arefresh()
        found = await default_task_backend.aget_result(result.id)
        assert (await calculate_slowly.aget_result(result.id)) == found == result
        with pytest.raises(TaskResultDoesNotExist):
            await default_task_backend.aget_result("nobody's")
        return result

    assert asyncio.run(both()).status == TaskResultStatus.READY


def test_arguments_are_what_json_makes_of_them() -> None:
    result = echo.enqueue((1, 2), b"text", [{"deep": (None, True, 1.5)}], word="\N{SNOWMAN}")
    assert result.args == [[1, 2], "text", [{"deep": [None, True, 1.5]}]]
    assert result.kwargs == {"word": "\N{SNOWMAN}"}
    assert default_task_backend.get_result(result.id).args == result.args


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (datetime(2026, 1, 1), TypeError),
        ({1, 2}, TypeError),
        (object(), TypeError),
        ([{"deep": timedelta(1)}], TypeError),
        (b"\xff", ValueError),
    ],
    ids=["datetime", "set", "object", "timedelta inside", "bytes"],
)
def test_what_is_no_json_is_refused_and_the_transaction_stays_usable(database: str, value: Any, error: Any) -> None:
    with transaction.atomic(using=database):
        with pytest.raises(error):
            process_data.enqueue(value)
        with pytest.raises(error):
            process_data.enqueue(data=value)
        result = process_data.enqueue("usable")
    assert is_there(result)


def test_a_refused_task_leaves_the_transaction_usable(database: str) -> None:
    with transaction.atomic(using=database):
        with pytest.raises(InvalidTask):
            process_data.using(queue_name="nobody serves this").enqueue(1)
        result = process_data.enqueue("usable")
    assert is_there(result)


def test_an_enqueue_is_part_of_the_transaction(database: str) -> None:
    def enqueue_and_roll_back() -> Any:
        with transaction.atomic(using=database):
            result = process_data.enqueue("rolled back")
            assert is_there(result)
            transaction.set_rollback(True, using=database)
        return result

    assert not is_there(enqueue_and_roll_back())
    with transaction.atomic(using=database):
        assert not is_there(enqueue_and_roll_back())
        kept = process_data.enqueue("committed")
    assert is_there(kept)


@committed
def test_an_enqueue_may_wait_for_the_commit(database: str) -> None:
    results = []
    with transaction.atomic(using=database):
        transaction.on_commit(lambda: results.append(partial(process_data.enqueue, data=1)()), using=database)
        assert results == []
    assert is_there(results[0])


def test_enqueued_is_sent_once_by_the_class_of_the_backend(sent: list[Any], backend_class: str) -> None:
    result = process_data.enqueue(1)
    ((name, sender, found),) = sent
    assert (name, f"{sender.__module__}.{sender.__qualname__}", found) == ("enqueued", backend_class, result.id)
    with pytest.raises(TypeError):
        process_data.enqueue(object())
    result.refresh()
    assert len(sent) == 1


# Results.


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "0",
        "-1",
        "nobody's",
        "\x00",
        "1\x00",
        "\ud800",
        "9" * 19,
        "9" * 100,
        "1e3",
        "01",
        "\N{ARABIC-INDIC DIGIT ONE}",
        " 1",
        "00000000-0000-0000-0000-000000000000",
        "123e4567-e89b-42d3-a456-426614174000",
        "x" * 32,
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_an_id_of_any_form_is_merely_not_there(database: str, bad: str) -> None:
    with transaction.atomic(using=database), CaptureQueriesContext(connections[database]):
        for get in (default_task_backend.get_result, process_data.get_result):
            with pytest.raises(TaskResultDoesNotExist):
                get(bad)
        assert is_there(process_data.enqueue("the transaction is usable"))


def test_an_id_is_found_as_it_was_given_only(database: str) -> None:
    result = process_data.enqueue(1)
    digits = "".join(chr(0x660 + int(digit)) if digit.isdecimal() else digit for digit in result.id)
    forms = ["0{}", "00{}", " {}", "{} ", "{}\n", "+{}", "{}.0", "{}\x00", "{}'"]
    for bad in [*(form.format(result.id) for form in forms), *({digits} - {result.id})]:
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(bad)


@committed
def test_a_result_of_another_task_does_not_match() -> None:
    result = calculate_meaning_of_life.enqueue()
    with pytest.raises(TaskResultMismatch):
        echo.get_result(result.id)

    async def ask() -> None:
        with pytest.raises(TaskResultMismatch):
            await echo.aget_result(result.id)

    asyncio.run(ask())


def test_a_result_is_of_the_backend_that_has_it() -> None:
    result = calculate_meaning_of_life.using(backend="any_queue").enqueue()
    assert (result.backend, task_backends["any_queue"].get_result(result.id).backend) == ("any_queue", "any_queue")


# In a project's tests.


@pytest.mark.parametrize("name", ["dummy.DummyBackend", "immediate.ImmediateBackend"])
def test_the_backends_for_tests_take_the_tasks_that_were_defined_for_this_one(name: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{NAME}.backends.{name}", "QUEUES": ["default", "emails"]}}):
        result = echo.using(queue_name="emails").enqueue(1, two=2)
    assert (result.args, result.kwargs) == ([1], {"two": 2})
    assert result.task.func is echo.func
