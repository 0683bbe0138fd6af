"""The workers are started again when code changes; runs get the grace, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from django_jobs.management.commands.runworkers import Command
from django_jobs.models import Job
from django_jobs.workers import broken_start
from tests.app.jobs import wait_for_file
from tests.harness import ROOT, Tree, wait_for
from tests.processes.common import on_postgresql, wait_for_effect, wait_until_gone, with_processes

SETTINGS = """
from django.utils import autoreload

from tests.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "changing"]
autoreload.StatReloader.SLEEP_TIME = 0.1
"""
JOBS = """
from django_jobs import job
from changing import late

@job
def word():
    return late.WORD
"""


@on_postgresql
class TestReload:
    pytestmark = with_processes

    def test_new_code_runs_after_what_runs_has_ended_and_broken_code_is_waited_out_from_the_start_on(
        self, tree: Tree, tmp_path: Path
    ) -> None:
        app, go = tmp_path / "changing", tmp_path / "go"
        app.mkdir()
        (app / "__init__.py").touch()
        (app / "models.py").write_text("def f(")
        (app / "late.py").write_text("WORD = 'first'")
        (app / "jobs.py").write_text(JOBS)
        (tmp_path / "changing_settings.py").write_text(SETTINGS)
        workers = tree.start(
            "--reload",
            env={
                "DJANGO_SETTINGS_MODULE": "changing_settings",
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
            },
        )

        def assert_says(word: str) -> None:
            job = Job.objects.create(type="changing.jobs.word", payload={"args": [], "kwargs": {}})
            assert tree.wait_for_status(job, "done", "failed", "dead").result == word

        wait_for(lambda: "this command starts again when code changes" in workers.log)
        (app / "models.py").write_text("")
        assert_says("first")
        running = wait_for_file.enqueue("a", str(go))
        wait_for_effect(tree, "a:start")
        (app / "late.py").write_text("WORD = ")
        wait_for(lambda: "late.py changed: the workers stop" in workers.log)
        go.touch()
        wait_for(lambda: "The workers ended (exit 1)" in workers.log)
        running.refresh()
        assert (running.status, running.token) == ("done", 1)
        (app / "late.py").write_text("WORD = 'second'")
        assert_says("second")
        go.unlink()
        last = wait_for_file.enqueue("b", str(go))
        wait_for_effect(tree, "b:start")
        os.killpg(workers.pid, signal.SIGINT)  # as a terminal does: one signal, which does not end the grace
        wait_for(lambda: "SIGINT: no more claims" in workers.log)
        go.touch()
        assert workers.wait() == 0
        last.refresh()
        assert last.status == "done"
        wait_until_gone(workers)

    def test_without_the_process_that_watches_the_workers_end(self, tree: Tree) -> None:
        workers = tree.start("--reload")
        wait_for(lambda: "is ready" in workers.log)
        workers.signal(signal.SIGKILL)
        wait_until_gone(workers)
        assert "Workers stopped (exit 0)" in workers.log


@pytest.mark.parametrize(("debug", "given", "child_of", "waits"), [
    (True, ["runworkers"], None, True),
    (False, ["runworkers"], None, False),
    (False, ["runworkers", "--reload", "--threads", "2"], None, True),
    (True, ["runworkers", "--no-reload"], None, False),
    (True, ["runworkers", "--burst"], None, False),
    (True, ["runserver"], None, False),
    (True, [], None, False),
    (True, ["runworkers"], os.getppid(), False),
])  # fmt: skip
def test_what_cannot_be_imported_at_the_start_is_waited_out_by_the_process_that_watches(
    debug: bool, given: list[str], child_of: int | None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DEBUG", debug)
    monkeypatch.setattr(sys, "argv", ["manage.py", *given])
    monkeypatch.setattr(sys, "excepthook", before := sys.excepthook)
    monkeypatch.setenv(broken_start.WATCHED_BY, str(child_of))
    broken_start.wait_out()
    assert (sys.excepthook is not before) is waits
    broken_start.is_over()
    assert sys.excepthook is before


@pytest.mark.parametrize(("debug", "options", "from_command_line", "reloads"), [
    (True, {}, True, True),
    (False, {}, True, False),
    (True, {"burst": True}, True, False),
    (True, {"reload": False}, True, False),
    (False, {"reload": True}, True, True),
    (True, {}, False, False),
])  # fmt: skip
def test_the_default_is_to_reload_with_debug(
    debug: bool, options: dict[str, Any], from_command_line: bool, reloads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DEBUG", debug)
    command = Command()
    command._from_command_line = from_command_line
    assert command._is_to_reload({"reload": None, "burst": False, **options}) is reloads
