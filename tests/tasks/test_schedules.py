"""Schedules of tasks: from the code by `@schedule`, and stored ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import InvalidJobType, checks, schedule
from django_jobs.engines.base import Engine
from django_jobs.models import Job, Schedule
from django_jobs.schedules import code, sync
from tests.processes.common import with_tables
from tests.releases import release
from tests.schedules.common import MINUTE, SECOND, late, tick
from tests.tasks import app_tasks as typed
from tests.tasks.common import OURS, run
from tests.tasks_contract.framework import NAME, TaskResultStatus, default_task_backend, task

# The framework's types know none of our options.
app_tasks: Any = typed
pytestmark = pytest.mark.fast
PATH = "tests.tasks.app_tasks.send"
DUMMY = f"{NAME}.backends.dummy.DummyBackend"


@pytest.fixture(autouse=True)
def nothing_declared() -> Iterator[None]:
    with release():
        yield


def found() -> list[tuple[str | None, str]]:
    return [(message.id, str(message.msg)) for message in checks.check_schedules(None)]


def test_above_a_task_it_is_a_schedule_of_its_type_and_the_task_stays_as_it_is() -> None:
    declared = schedule("30 2 * * *", args=["a", "b"])(app_tasks.send)
    assert schedule(every=60, name="often", args=["a"], kwargs={"password": "b"})(declared) is app_tasks.send
    line = typed.send.func.__code__.co_firstlineno
    assert [(found.name, found.type, found.place) for found in code.schedules()] == [
        ("often", PATH, f"{PATH} (line {line})"),
        (PATH, PATH, f"{PATH} (line {line})"),
    ]
    assert found() == []


def test_arguments_that_do_not_fit_the_task_are_found_by_the_check() -> None:
    schedule(every=60)(app_tasks.send)
    ((number, said),) = found()
    assert (number, "do not fit" in said, "address" in said) == ("django_jobs.E008", True, True)


def test_below_task_it_is_refused_with_the_order() -> None:
    with pytest.raises(InvalidJobType, match=r"write @job, or @task, directly below it\."):
        task(schedule("@daily")(app_tasks.send.func))


def test_without_parentheses_above_a_task_it_is_refused_with_how_to_write_it() -> None:
    with pytest.raises(InvalidJobType, match=rf"above the task {PATH} does not say when; write @schedule"):
        schedule(app_tasks.send)


def pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a module define a task with a schedule."""

    def remind() -> None: ...

    remind.__module__, remind.__qualname__ = "pasted_tasks", "remind"
    module: Any = ModuleType("pasted_tasks")
    monkeypatch.setitem(sys.modules, "pasted_tasks", module)
    module.remind = schedule("@daily")(task(remind))


def test_a_task_that_was_defined_for_another_backend_is_known_to_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(TASKS={"default": {"BACKEND": DUMMY}, "jobs": {"BACKEND": OURS}}):
        pasted(monkeypatch)
        assert found() == []


def test_without_a_backend_of_ours_it_is_reported_and_stops_no_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(TASKS={"default": {"BACKEND": DUMMY}}):
        pasted(monkeypatch)
        (message,) = checks.check_schedules(None)
    assert (message.id, message.is_serious()) == ("django_jobs.W007", False)
    assert "makes no jobs: TASKS has no backend of django_jobs" in message.msg


@with_tables
def test_its_slots_become_tasks_that_run(engine: Engine) -> None:
    schedule(every=60, args=["ada@example.com"], kwargs={"password": "1234"}, queue="mail", priority=3)(app_tasks.send)
    sync.sync(engine.alias)
    stored = Schedule.objects.using(engine.alias).get()
    assert (stored.name, stored.type) == (PATH, PATH)
    # One that a person made, as the admin does.
    made = late(engine, MINUTE, 5 * SECOND, name="by hand", type=app_tasks.send, payload=stored.payload)
    assert made.type == PATH
    tick(engine, (PATH,))
    job = Job.objects.using(engine.alias).get()
    assert (job.type, job.schedule) == (PATH, "by hand")
    assert run(engine) == ["done"]
    result = default_task_backend.get_result(str(job.pk))
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "ada@example.com")
