"""What is done to a run that passes its deadline, and what its end then counts as."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connections, transaction

from django_jobs import Cancel, Fail, Retry, Snooze, registry
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.workers import statements
from django_jobs.workers.deadlines import Watch, Watcher
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import SeatMap, State
from tests.app.deadline_jobs import ENDLESS_SQL
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.harness import wait_for
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import SETTINGS, plan

pytestmark = with_tables


def run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, function: Any, watch: Watch, **options: Any
) -> Done | Settlement:
    """Run a function without arguments as a job of its own type."""
    job_type = replace(nothing.job_type, **{"name": "test", "function": function, **options})
    monkeypatch.setattr(registry, "_types", {"test": job_type})
    payload = json.dumps({"args": [], "kwargs": {}})
    job = Claimed(1, 1, "inc:1", "test", payload, 0, 8, None, 0.5, None)
    return Runner(engine, SETTINGS, "host:1").run(job, None, watch)  # type: ignore[arg-type]


def raises(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def end(outcome: Done | Settlement) -> tuple[str, str, str]:
    if isinstance(outcome, Done):
        return ("done", "", "")
    return outcome.status, outcome.counts, outcome.cause


@pytest.mark.parametrize(
    ("error", "late", "in_time"),
    [
        (KeyError("k"), ("ready", "attempt", "deadline"), ("failed", "end", "failed")),
        (OSError("o"), ("ready", "attempt", "deadline"), ("ready", "attempt", "raised")),
        (OperationalError("away"), ("ready", "loss", "database away"), ("ready", "loss", "database away")),
        (SystemExit(), ("ready", "attempt", "deadline"), ("failed", "end", "failed")),
        (ValueError("v"), ("failed", "end", "failed"), ("failed", "end", "failed")),
        (Retry(5), ("ready", "attempt", "retry"), ("ready", "attempt", "retry")),
        (Snooze(5), ("ready", "end", "snoozed"), ("ready", "end", "snoozed")),
        (Fail("f"), ("failed", "end", "failed"), ("failed", "end", "failed")),
        (Cancel("c"), ("cancelled", "end", "cancelled"), ("cancelled", "end", "cancelled")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_after_the_deadline_is_an_attempt_whatever_retry_on_says(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    late: tuple[str, str, str],
    in_time: tuple[str, str, str],
) -> None:
    monkeypatch.setattr(engine, "probe", lambda timeout: False)
    options = {"retry_on": (OSError,), "fail_on": (ValueError,)}
    assert end(run(engine, monkeypatch, raises(error), Watch(time.monotonic() + 60), **options)) == in_time
    outcome = run(engine, monkeypatch, raises(error), Watch(time.monotonic()), **options)
    assert end(outcome) == late
    assert isinstance(outcome, Settlement)
    if outcome.cause == "deadline":
        assert str(outcome.error).startswith("The run passed its deadline of 0.5 s: Traceback")
        said = json.loads(str(outcome.entry))["error"]
        assert type(error).__name__ in said.removeprefix("The run passed its deadline of 0.5 s: ")


@pytest.mark.parametrize("error", [KeyError(), OperationalError("locked"), OperationalError("interrupted")])
def test_an_error_after_the_deadline_is_an_attempt_while_the_database_answers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(engine, "probe", lambda timeout: not asked.append(timeout))  # type: ignore[func-returns-value]
    assert end(run(engine, monkeypatch, raises(error), Watch(time.monotonic()))) == ("ready", "attempt", "deadline")
    assert len(asked) == (str(error) == "locked")


def test_a_plain_return_after_the_deadline_is_taken_at_its_word(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(engine, monkeypatch, lambda: 5, Watch(time.monotonic()))
    assert isinstance(outcome, Done)
    assert outcome.result == "5"


def test_all_connections_of_a_run_past_its_deadline_are_thrown_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, Any] = {}

    def use() -> None:
        for alias in ("default", "lite"):
            assert Effect.objects.using(alias).count() == 0
            used[alias] = connections[alias].connection

    run(engine, monkeypatch, use, Watch(time.monotonic() + 60))
    assert [connections[alias].connection for alias in used] == list(used.values())
    run(engine, monkeypatch, use, Watch(time.monotonic()))
    for alias, raw in used.items():
        assert connections[alias].connection is None
        if alias == "default":
            assert raw.closed


@contextmanager
def watched(watch: Watch) -> Iterator[Watcher]:
    watcher = Watcher(SeatMap(1).regions[0], 2)
    watcher.start()
    watcher.begin(0, watch)
    yield watcher
    watcher.end(0)


def test_the_statement_of_a_run_past_its_deadline_is_cancelled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def asks() -> None:
        with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)" if engine.name == "postgresql" else ENDLESS_SQL)

    # In a worker process those that are opened later are remembered as well.
    connections[engine.alias].ensure_connection()
    watch = Watch(time.monotonic() + 0.2, patience=60)
    with watched(watch):
        outcome = run(engine, monkeypatch, asks, watch)
    assert end(outcome) == ("ready", "attempt", "deadline")
    assert ("canceling statement due to user request" if engine.name == "postgresql" else "interrupted") in str(outcome)
    assert Effect.objects.using(engine.alias).count() == 0


def test_a_handler_in_python_is_interrupted_in_the_second_step_and_not_in_the_first(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spins() -> None:
        while True:
            time.sleep(0.001)

    begun = time.monotonic()
    watch = Watch(begun + 0.2, patience=0.6)
    with watched(watch):
        outcome = run(engine, monkeypatch, spins, watch)
    assert end(outcome) == ("ready", "attempt", "deadline")
    assert "DeadlinePassed" in str(outcome)
    assert 0.8 <= time.monotonic() - begun < 10


def test_the_task_of_an_async_handler_is_cancelled_at_the_deadline(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleeps() -> None:
        await asyncio.sleep(30)

    watch = Watch(time.monotonic() + 0.2, patience=60)
    with watched(watch):
        outcome = run(engine, monkeypatch, sleeps, watch)
    assert end(outcome) == ("ready", "attempt", "deadline")
    assert "CancelledError" in str(outcome)


def test_a_step_that_comes_late_leaves_the_next_one_its_time() -> None:
    watch = Watch(time.monotonic() - 100, patience=5)
    steps: list[int] = []

    def look() -> None:
        now = time.monotonic()
        for later in (0, 4, 6):
            watch.look(now + later)
            steps.append(watch._steps)

    def call() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)

    watch.call(call)
    assert steps == [1, 1, 2]


def test_the_thread_that_waits_for_an_async_handler_is_not_interrupted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: list[bool] = []
    monkeypatch.setattr("django_jobs.workers.pinned.PinnedCall.interrupt", lambda call: interrupted.append(True))

    async def swallows() -> int:
        for _ in range(2):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                pass
        return 5

    watch = Watch(time.monotonic() + 0.1, patience=0.1)
    with watched(watch):
        outcome = run(engine, monkeypatch, swallows, watch)
    assert (end(outcome), watch._steps, interrupted) == (("done", "", ""), 2, [])


def test_a_watcher_that_sleeps_until_a_late_deadline_is_woken_by_an_earlier_one() -> None:
    late = Watch(time.monotonic() + 900, patience=5)
    with watched(late) as watcher:
        wait_for(lambda: watcher._wakes_at == late.deadline)
        early = Watch(time.monotonic() + 0.2, patience=60)
        watcher.begin(1, early)
        early.call(lambda: wait_for(lambda: early._steps == 1, 10.0))
    assert late._steps == 0


def test_a_deadline_that_was_looked_at_before_its_call_had_begun_is_seen_all_the_same() -> None:
    watch = Watch(time.monotonic() + 0.1, patience=60)
    with watched(watch) as watcher:
        wait_for(lambda: watcher._wakes_at != math.inf)
        wait_for(lambda: time.monotonic() > watch.deadline + 0.1)
        assert watch._steps == 0
        watch.call(lambda: wait_for(lambda: watch._steps == 1, 10.0))


def test_a_watcher_does_nothing_while_runs_come_and_go_in_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look(watch: Watch, now: float) -> float:
        looks.append(now)
        return watch.deadline

    monkeypatch.setattr(Watch, "look", look)
    with watched(Watch(time.monotonic() + 900)) as watcher:
        for _ in range(300):
            watch = Watch(time.monotonic() + 900)
            watcher.begin(1, watch)
            watch.call(lambda: time.sleep(0.001))
            watcher.end(1)
    assert len(looks) < 10


def test_the_supervisor_finds_the_deadline_of_a_run_in_its_seat() -> None:
    region = SeatMap(1).regions[0]
    for number, deadline in enumerate((math.inf, 100.0, 100.0, 100.0)):
        region.take([(number, number + 1, 1)], 1)
        if number < 3:
            region.begin(number, deadline)
    region.mark(2, State.RETURNED)
    assert [seat.deadline for seat in region.seats()] == [0.0, 100.0, 100.0, 0.0]
    assert [seat.number for seat in region.seats() if seat.is_late(111.0, 10.0)] == [1]
    assert not [seat for seat in region.seats() if seat.is_late(109.0, 10.0)]
    region.begin(1, math.inf)
    assert region.seats()[1].deadline == 0.0


def test_a_plan_cancels_what_it_can_shortly_before_the_end() -> None:
    assert [plan("default").cut_at(100.0, grace) for grace in (25.0, 2.0)] == [99.0, 99.5]


# A network that swallows everything.


class Swallowing:
    """Passes on what goes to the server and back, until it is told to swallow all of it."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.port = self._listener.getsockname()[1]
        self.swallows = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()
        except OSError:
            pass

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.swallows:
                    target.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        for ours in self._sockets:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            ours.close()


@on_postgresql
def test_a_connection_that_waits_on_a_dead_network_is_broken_and_others_are_not(engine: Engine) -> None:
    parameters = engine.connection.get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    host, port = parameters["host"], int(parameters.get("port") or 5432)
    errors: list[BaseException] = []

    def ask(raw: psycopg.Connection[Any]) -> None:
        try:
            raw.execute("SELECT 1")
        except psycopg.OperationalError as error:
            errors.append(error)

    with closing(Swallowing((host, port))) as network:
        through = {**parameters, "host": "127.0.0.1", "port": network.port, "autocommit": True}
        with psycopg.connect(**through) as waits, psycopg.connect(**parameters, autocommit=True) as idle:
            sessions: dict[str, list[Any]] = {"default": [None, waits], "other": [idle]}
            backend = waits.info.backend_pid
            network.swallows = True
            thread = threading.Thread(target=ask, args=(waits,))
            thread.start()
            wait_for(lambda: int(waits.pgconn.transaction_status) == statements.ACTIVE)
            statements.shut_down(sessions)
            thread.join(10)
            assert not thread.is_alive()
            assert len(errors) == 1
            assert idle.execute("SELECT 1").fetchone() == (1,)
            network.close()
            others = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
            wait_for(lambda: idle.execute(others, [backend]).fetchone() == (0,), what="the server has noticed")
