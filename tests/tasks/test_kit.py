"""The test kit takes tasks wherever it takes jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from django.test import override_settings

from django_jobs import registry
from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob
from django_jobs.testing import (
    assert_enqueued,
    assert_takes_effect_once,
    enqueued,
    immediate,
    lease_lost,
    run_jobs,
)
from tests.app.jobs import nothing
from tests.tasks import app_tasks as typed
from tests.tasks_contract.framework import NAME, task

app_tasks: Any = typed
pytestmark = pytest.mark.django_db(databases="__all__")


def test_a_task_is_found_run_and_met_by_faults_as_a_job_is(engine: Engine) -> None:
    nothing.enqueue(1)
    app_tasks.nothing.enqueue((1, 2), b"x", on="y")
    assert len(enqueued(app_tasks.nothing)) == len(enqueued(app_tasks.nothing.module_path)) == 1
    assert assert_enqueued(app_tasks.nothing, args=[(1, 2), b"x"], kwargs={"on": ANY}, times=1)
    with lease_lost(app_tasks.nothing):
        ran = run_jobs(types=[app_tasks.nothing])
    assert [(one.type, one.status) for one in ran] == [
        (app_tasks.nothing.module_path, "lost lease"),
        (app_tasks.nothing.module_path, "done"),
    ]
    assert len(enqueued()) == 1


def test_the_result_of_a_task_stands_for_its_job(engine: Engine) -> None:
    counted: list[int] = []
    result = app_tasks.send.enqueue("ada@example.com", "x")
    other = app_tasks.send.enqueue("bob@example.com", "x")
    with pytest.raises(InvalidJob, match=r"more than one job of .*send waits"):
        assert_takes_effect_once(app_tasks.send)
    with pytest.raises(AssertionError, match="had no effect in 3 runs"):
        assert_takes_effect_once(result, lambda: len(counted))
    result.refresh()
    other.refresh()
    assert (str(result.status), str(other.status)) == ("SUCCESSFUL", "READY")


def test_a_task_of_another_backend_is_refused(engine: Engine) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{NAME}.backends.dummy.DummyBackend"}}):
        elsewhere = task(unknown)
        with pytest.raises(InvalidJob, match=r"another backend .*JobsBackend in tests too"):
            assert_enqueued(elsewhere)
        with pytest.raises(InvalidJob, match=r"the result '.*' is of no job"):
            assert_takes_effect_once(SimpleNamespace(id="Kf3", task=elsewhere))
    assert registry.find(elsewhere.module_path) is None


def unknown() -> None: ...


def test_tasks_are_run_where_they_are_enqueued(engine: Engine) -> None:
    with immediate():
        result = app_tasks.send.enqueue("ada@example.com", "x")
    result.refresh()
    assert result.return_value == "ada@example.com"
