"""The page on tasks: its code runs, and it names all options."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.engines.base import Engine
from django_jobs.tasks import options
from tests.processes.common import with_tables
from tests.tasks.app_tasks import with_own_options
from tests.tasks.common import run
from tests.tasks_contract.framework import NAME, default_task_backend
from tests.test_docs import ROOT, blocks


@pytest.mark.skipif(not with_own_options, reason="@task takes no more options on Django 6.0")
@with_tables
def test_the_code_of_the_page_works_as_pasted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, code = blocks("docs/tasks.md", "python")
    found: dict[str, Any] = {}
    exec(settings, found)
    module: Any = ModuleType("pasted_tasks")
    monkeypatch.setitem(sys.modules, "pasted_tasks", module)
    with override_settings(TASKS=found["TASKS"]):
        # The page's module is another than that in which its code is tried.
        assert [message.id for message in default_task_backend.check()] == ["django_jobs.W005"]
        exec(code.replace("django.tasks", NAME), module.__dict__)
        first, second = module.paid(42), module.paid(42)
        assert run(engine) == ["done"]
        first.refresh()
    assert (first.id, first.return_value, first.task.queue_name) == (second.id, "order 42", "mail")


def test_the_page_names_all_options_and_where_each_may_stand() -> None:
    page = (ROOT / "docs" / "tasks.md").read_text()
    places: list[set[str]] = [set(), set(), set(), set()]
    for line in re.findall(r"^\| `.*$", page, re.M):
        _, names, *marks = line.split("|")
        for place, mark in zip(places, marks, strict=False):
            place.update(re.findall(r"`(\w+)`", names) if mark.strip() == "yes" else [])
    assert places == [
        {*options.ANYWHERE, options.TASKS, options.MODULES},
        {*options.ANYWHERE},
        {*options.OWN},
        {*options.USING},
    ]
