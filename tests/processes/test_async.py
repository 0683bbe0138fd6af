"""Async handlers: they end as sync ones do, and the connections they use are those of their thread."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.db.models.functions import Now

from django_jobs import Cancel, Fail, Retry, Snooze, registry
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.models import Job
from django_jobs.workers.runner import Runner
from tests.app.async_jobs import fork_asynchronously, meet, report_while_async, wait_until_cancelled
from tests.app.jobs import nothing, wait_for_file
from tests.app.models import Effect
from tests.harness import Tree, wait_for
from tests.processes.common import (
    effects,
    ends,
    lines,
    lives,
    on_postgresql,
    session_pids,
    state,
    wait_for_effect,
    with_processes,
    with_tables,
)
from tests.processes.parts import SETTINGS

in_process = with_tables


def run(engine: Engine, monkeypatch: pytest.MonkeyPatch, function: Any, **options: Any) -> Done | Settlement:
    """Run a function without arguments as a job of its own type."""
    job_type = replace(nothing.job_type, **{"name": "test", "function": function, **options})
    monkeypatch.setattr(registry, "_types", {"test": job_type})
    payload = json.dumps({"args": [], "kwargs": {}})
    job = Claimed(1, 1, "inc:1", "test", payload, 0, 8, None, None, None)
    return Runner(engine, SETTINGS, "host:1").run(job, None)  # type: ignore[arg-type]


class Unusual(BaseException):
    """As those of libraries that are no Exception."""


# What a handler returns or raises; how the run ends; what is said of it.
ENDS: list[tuple[Any, tuple[str, str, str], str]] = [
    (Retry(5, "later"), ("ready", "attempt", "retry"), "later"),
    (Snooze(7), ("ready", "end", "snoozed"), "Snooze"),
    (Fail("no"), ("failed", "end", "failed"), "no"),
    (Cancel("enough"), ("cancelled", "end", "cancelled"), "enough"),
    (OSError("gone"), ("ready", "attempt", "raised"), "OSError: gone"),
    (KeyError("key"), ("failed", "end", "failed"), "KeyError: 'key'"),
    (ValidationError("never"), ("failed", "end", "failed"), "never"),
    (SystemExit(3), ("ready", "attempt", "raised"), "SystemExit: 3"),
    (KeyboardInterrupt(), ("ready", "attempt", "raised"), "KeyboardInterrupt"),
    (asyncio.CancelledError(), ("ready", "attempt", "raised"), "CancelledError"),
    (Unusual("odd"), ("ready", "attempt", "raised"), "Unusual: odd"),
]
OPTIONS = {"retry_on": (OSError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, Unusual), "fail_on": ()}


@in_process
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("what", "expected", "said"), ENDS, ids=[type(row[0]).__name__ for row in ENDS])
def test_what_a_handler_raises_ends_its_run_alike(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
    what: BaseException,
    expected: tuple[str, str, str],
    said: str,
) -> None:
    def raises() -> None:
        raise what

    async def raises_asynchronously() -> None:
        await asyncio.sleep(0)
        raise what

    outcome = run(engine, monkeypatch, raises_asynchronously if is_async else raises, **OPTIONS)
    assert isinstance(outcome, Settlement)
    assert (outcome.status, outcome.counts, outcome.cause) == expected
    assert said in str(outcome.error)
    assert isinstance(what, Retry | Snooze) == (outcome.delay in (5, 7))


@in_process
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("what", "expected", "said"), ENDS[:4], ids=[type(row[0]).__name__ for row in ENDS[:4]])
def test_what_a_handler_returns_ends_its_run_alike(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
    what: BaseException,
    expected: tuple[str, str, str],
    said: str,
) -> None:
    async def returns_asynchronously() -> Any:
        return what

    outcome = run(engine, monkeypatch, returns_asynchronously if is_async else lambda: what)
    assert isinstance(outcome, Settlement)
    assert (outcome.status, outcome.counts, outcome.cause) == expected
    assert said in str(outcome.error)


async def _inner() -> None: ...


@in_process
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: object(), "the result is a object"),
        (lambda: float("nan"), "the result is nan, which JSON has no word for"),
        (lambda: Retry, "The handler returned the class Retry; return Retry(...)"),
        (lambda: _inner(), "The handler returned a coroutine, so nothing was run"),
    ],
    ids=["object", "NaN", "class", "coroutine"],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_result_that_cannot_be_one_is_that_attempts_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, is_async: bool, make: Any, said: str
) -> None:
    async def returns_asynchronously() -> Any:
        return make()

    outcome = run(engine, monkeypatch, returns_asynchronously if is_async else make)
    assert isinstance(outcome, Settlement)
    assert (outcome.status, outcome.counts, outcome.cause) == ("ready", "attempt", "raised")
    assert said in str(outcome.error)


@in_process
def test_what_an_async_handler_asks_the_database_is_asked_by_the_connection_of_its_thread(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connections[engine.alias]

    async def handler() -> Any:
        same = await sync_to_async(lambda: connections[engine.alias] is connection)()
        await Effect.objects.using(engine.alias).acreate(key="async")
        return [same, await sync_to_async(lambda: connections[engine.alias].in_atomic_block)()]

    with transaction.atomic(using=engine.alias):
        with monkeypatch.context() as patched:
            patched.setattr("django_jobs.workers.runner.discard_open_transactions", list)
            outcome = run(engine, monkeypatch, handler)
        assert outcome == Done(outcome.run, "[true,true]")
        transaction.set_rollback(True, using=engine.alias)
    assert not Effect.objects.using(engine.alias).exists(), "it was written outside of the transaction"


class TestInATree:
    pytestmark = with_processes

    def test_four_async_handlers_ask_the_database_side_by_side_each_by_its_own_thread(self, tree: Tree) -> None:
        # Each waits for all the others, so none of them may wait for another one's turn.
        jobs = [meet.using(timeout=20).enqueue("here", 4) for _ in range(4)]
        context = report_while_async.using(priority=-1, idempotency_key="k").enqueue()
        workers = tree.start("--burst", "--threads", "4")
        assert workers.wait() == 0, workers.log
        assert {state(job) for job in (*jobs, context)} == {("done", 0, 0, 1)}
        assert {job.result for job in jobs} == {f"django_jobs-{index}" for index in range(4)}
        assert context.result == [context.pk, 1, 1, "k", False]
        assert context.progress == {"done": 1, "total": 2, "note": "half"}

    @on_postgresql
    def test_what_an_async_handler_forks_tells_no_outcome_and_ends(self, tree: Tree) -> None:
        job = fork_asynchronously.enqueue("forked")
        workers = tree.start("--threads", "1")
        tree.wait_for_status(job, "done")
        assert state(job) == ("done", 0, 0, 1)
        copy = wait_for_effect(tree, "forked")
        wait_for(lambda: not lives(copy), what="the copy ends")
        assert workers.stop() == 0

    def test_at_the_end_of_the_grace_an_async_run_is_cancelled_and_goes_back_uncharged(self, tree: Tree) -> None:
        jobs = [wait_until_cancelled.enqueue(key) for key in ("a", "b")]
        due = [job.run_at for job in jobs]
        workers = tree.start("--threads", "2", settings={"SHUTDOWN_GRACE": 2})
        for key in ("a", "b"):
            wait_for_effect(tree, f"{key}:start")
        begun = time.monotonic()
        assert workers.stop() == 3
        assert 1 <= time.monotonic() - begun < 4
        assert effects(tree, key__endswith=":cancelled") == [("a:cancelled", 1), ("b:cancelled", 1)]
        assert [(state(job), ends(job), job.last_error) for job in jobs] == [
            (("ready", 0, 0, 1), [(1, "stopped")], "")
        ] * 2
        assert [job.run_at for job in jobs] == due
        # They ended by themselves: nothing had to be killed.
        assert not lines(workers, "The grace is over")
        assert lines(workers, "2 stopped")

    @on_postgresql
    def test_scenario_6_short_runs_finish_and_what_is_long_goes_back_within_the_grace(
        self, tree: Tree, tmp_path: Path
    ) -> None:
        never = str(tmp_path / "never")
        asynchronous, synchronous = wait_until_cancelled.enqueue("async"), wait_for_file.enqueue("sync", never)
        short = [wait_for_file.enqueue(f"short {number}", str(tmp_path / "go")) for number in range(2)]
        workers = tree.start("--threads", "4", settings={"SHUTDOWN_GRACE": 4})
        for key in ("async", "sync", "short 0", "short 1"):
            wait_for_effect(tree, f"{key}:start")
        queued = [nothing.enqueue(number) for number in range(100)]
        begun = time.monotonic()
        workers.signal(signal.SIGTERM)
        late = [nothing.enqueue(number) for number in range(5)]
        (tmp_path / "go").touch()
        assert workers.wait() == 3
        assert time.monotonic() - begun <= 4 + 2
        assert {state(job) for job in short} == {("done", 0, 0, 1)}
        assert {state(job) for job in [*queued, *late]} == {("ready", 0, 0, 0)}
        for job in (asynchronous, synchronous):
            assert (state(job), ends(job)) == (("ready", 0, 0, 1), [(1, "stopped")])
        assert [job.history[0]["error"] for job in (asynchronous, synchronous)] == [
            "its task was cancelled",
            "stopped by a signal when the grace was over",
        ]
        assert effects(tree, key="async:cancelled") == [("async:cancelled", 1)]
        assert session_pids(workers.pid) == []

    @on_postgresql
    def test_a_run_whose_job_is_no_longer_its_own_is_cancelled(self, tree: Tree) -> None:
        job = wait_until_cancelled.enqueue("a")
        workers = tree.start()
        pid = wait_for_effect(tree, "a:start")
        Job.objects.using(tree.alias).filter(pk=job.pk).update(
            status="ready", locked_by=None, locked_until=None, run_at=Now() + timedelta(hours=1)
        )
        begun = time.monotonic()
        assert wait_for_effect(tree, "a:cancelled") == pid
        assert time.monotonic() - begun < 1 + 0.5 + 1.5  # a heartbeat, half a second, and a busy machine
        wait_for(lambda: lines(workers, "is told to stop; the job is no longer its"))
        tree.wait_for_status(nothing.enqueue(), "done")
        assert (state(job), ends(job)) == (("ready", 0, 0, 1), [])
        assert workers.worker_pids() == [pid]
        assert workers.stop() == 0
