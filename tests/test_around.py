"""What is around each run: the context manager of the project, and what its log lines say of the job."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import Context, checks, registry
from django_jobs import logging as job_logging
from django_jobs.context import current
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.workers import calling
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.runner import Runner
from tests.app.around_jobs import die_once, talk
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.harness import Tree
from tests.processes.common import on_postgresql, with_processes, with_tables
from tests.processes.parts import SETTINGS, claim

_entered: Callable[[Context], None] = lambda context: None  # noqa: E731
_left: Callable[[], None] = lambda: None  # noqa: E731


@contextmanager
def hook(context: Context) -> Iterator[None]:
    _entered(context)
    yield
    _left()


@contextmanager
def swallowing(context: Context) -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        pass


no_function = 5


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def hooked(entered: Any = lambda context: None, left: Any = lambda: None) -> None:
        monkeypatch.setitem(globals(), "_entered", entered)
        monkeypatch.setitem(globals(), "_left", left)

    return hooked


def run(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    function: Any,
    *,
    around: str | None = "tests.test_around.hook",
    watch: Watch | None = None,
    **options: Any,
) -> Done | Settlement:
    """Run a function as a job of its own type, with an argument."""
    monkeypatch.setattr(registry, "_types", {nothing.name: replace(nothing.job_type, function=function, **options)})
    nothing.using(queue="mail").enqueue(7)
    (job,) = claim(engine, 1)
    return Runner(engine, replace(SETTINGS, around=around), "host:1").run(job, context_of(job), watch)


def context_of(job: Claimed) -> Context:
    return calling.context_of(job, lambda: False, lambda progress: None)


def error(ended: Done | Settlement) -> tuple[str, str, str]:
    assert isinstance(ended, Settlement)
    return ended.status, ended.cause, str(ended.error).strip().splitlines()[-1]


@with_tables
class TestAround:
    def test_it_is_entered_with_the_runs_context_and_left_after_the_function(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, hooked: Any
    ) -> None:
        said: list[Any] = []
        hooked(
            lambda context: said.append((context.job_type, context.queue, context.arguments)), lambda: said.append(2)
        )
        assert run(engine, monkeypatch, lambda number: said.append(1)).run.token == 1
        assert said == [(nothing.name, "mail", {"number": 7}), 1, 2]

        async def asynchronous(number: int) -> None:
            await asyncio.sleep(0)
            said.append(current.get())

        run(engine, monkeypatch, asynchronous)
        assert [type(item) for item in said[3:]] == [tuple, Context, int]

    def test_what_it_raises_is_the_runs_error(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, hooked: Any
    ) -> None:
        def fail(*args: Any) -> None:
            raise RuntimeError("no such tenant")

        expected = ("ready", "raised", "RuntimeError: no such tenant")
        hooked(fail)
        assert error(run(engine, monkeypatch, lambda number: number)) == expected
        hooked(left=fail)
        assert error(run(engine, monkeypatch, lambda number: number)) == expected
        assert error(run(engine, monkeypatch, lambda number: number, around="tests.nowhere.hook")) == (
            "ready", "raised", "ModuleNotFoundError: No module named 'tests.nowhere'",
        )  # fmt: skip
        assert isinstance(run(engine, monkeypatch, fail, around="tests.test_around.swallowing"), Done)

    def test_it_is_inside_the_deadline(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, hooked: Any) -> None:
        inside: list[bool] = []
        watch = Watch(time.monotonic() + 60)
        hooked(lambda context: inside.append(watch._call.inside), lambda: inside.append(watch._call.inside))
        run(engine, monkeypatch, lambda number: number, watch=watch)
        assert inside == [True, True]

    def test_it_is_inside_the_transaction_of_an_atomic_job(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, hooked: Any
    ) -> None:
        def leave(context: Context) -> None:
            assert connections[engine.alias].in_atomic_block
            Effect.objects.using(engine.alias).create(key="hook", run=1)

        def fail(number: int) -> None:
            raise RuntimeError

        hooked(leave)
        assert error(run(engine, monkeypatch, fail, atomic=True))[1] == "raised"
        assert not Effect.objects.using(engine.alias).exists()
        ended = run(engine, monkeypatch, lambda number: number, atomic=True)
        assert ended.stored == "done"
        assert Effect.objects.using(engine.alias).count() == 1

    def test_the_hooks_of_an_atomic_jobs_transaction_log_as_its_run(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[Any] = []

        def function(number: int) -> None:
            transaction.on_commit(lambda: seen.append(current.get()), using=engine.alias)

        run(engine, monkeypatch, function, atomic=True, around=None)
        assert [context.queue for context in seen] == ["mail"]
        assert current.get() is None


@pytest.mark.parametrize(("path", "said"), [
    ("tests.nowhere.hook", "cannot be imported: No module named 'tests.nowhere'"),
    ("tests.test_around.no_function", "that is no function, and no class of context managers."),
    ("hook", "give the dotted path of a function"),
    (hook, "give the dotted path of a function"),
])  # fmt: skip
def test_a_hook_that_cannot_be_is_said_by_a_check(path: Any, said: str, settings: Any) -> None:
    settings.DJANGO_JOBS = {"AROUND": path}
    (found,) = checks.check_settings(None)
    assert found.id == "django_jobs.E001"
    assert said in found.msg
    settings.DJANGO_JOBS = {"AROUND": "tests.test_around.hook"}
    assert checks.check_settings(None) == []


# What log records say.


def record(**extra: Any) -> logging.LogRecord:
    return logging.getLogger("tests.records").makeRecord("a", logging.INFO, "", 0, "said", (), None, extra=extra)


@contextmanager
def in_run() -> Iterator[None]:
    claimed = Claimed(9, 1, "a", nothing.name, "{}", 0, 8, None, None, None, queue="mail")
    token = current.set(context_of(claimed))
    try:
        yield
    finally:
        current.reset(token)


def fields(found: logging.LogRecord) -> list[Any]:
    return [getattr(found, name, None) for name in job_logging.FIELDS]


def test_the_filter_names_the_running_job_and_else_its_default() -> None:
    named, default, only = job_logging.JobFilter(), job_logging.JobFilter(default=""), job_logging.JobFilter("b")
    outside, inside, extra, others = record(), record(), record(queue="mine"), record()
    with in_run():
        assert named.filter(inside)
        assert named.filter(extra)
        assert not only.filter(others)
    assert default.filter(outside)
    assert [fields(found) for found in (inside, extra, outside)] == [
        [9, nothing.name, "mail", 1], [9, nothing.name, "mine", 1], ["", "", "", ""],
    ]  # fmt: skip


def test_the_handlers_of_a_worker_say_the_job_in_runs_and_nothing_outside(caplog: pytest.LogCaptureFixture) -> None:
    handlers = [caplog.handler, *logging.getLogger().handlers]
    before = {handler: list(handler.filters) for handler in handlers}
    try:
        job_logging.say_in_runs()
        job_logging.say_in_runs()
        assert len(caplog.handler.filters) == len(before[caplog.handler]) + 1
        with in_run():
            logging.getLogger("tests.deep.below").warning("inside", extra={"attempt": "mine"})
        logging.getLogger("tests.deep.below").warning("outside")
    finally:
        for handler, filters in before.items():
            handler.filters[:] = filters
    assert [fields(found) for found in caplog.records] == [[9, nothing.name, "mail", "mine"], [None] * 4]


LOGGING = {
    "version": 1,
    "formatters": {"job": {"format": "%(message)s: %(job_id)s %(job_type)s %(queue)s %(attempt)s"}},
    "handlers": {
        "job": {"class": "logging.StreamHandler", "formatter": "job"},
        "plain": {"class": "logging.StreamHandler"},
    },
    "loggers": {
        "tests.around": {"handlers": ["job"], "level": "INFO", "propagate": False},
        "tests": {"handlers": ["plain"]},
    },
}


@on_postgresql
class TestInProcesses:
    pytestmark = with_processes

    def test_what_is_logged_in_a_run_names_its_job_and_the_supervisor_tells_of_a_lost_one(self, tree: Tree) -> None:
        job = talk.using(queue="mail").enqueue("hello")
        lost = die_once.enqueue(job.pk)
        workers = tree.start(
            "--burst",
            settings={"AROUND": "tests.app.around_jobs.say"},
            env={"DJANGO_JOBS_TEST_LOGGING": json.dumps(LOGGING)},
        )
        assert workers.wait() == 0
        said = [line.partition(f": {job.pk} {talk.name} ") for line in workers.log.splitlines()]
        assert [(words, rest) for words, found, rest in said if found] == [
            ("started", "mail 1"),
            ("around mail {'word': 'hello'}", "mail 1"),
            ("hello", "mail 1"),
            ("hello in a thread", "mail 1"),
            ("hello with an extra", "mine 1"),
            ("left", "mail 1"),
        ]
        assert workers.log.count("told that it died") == 1
        assert [tree.wait_for_status(found, "done").token for found in (job, lost)] == [1, 2]
