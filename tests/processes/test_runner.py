"""What a run's end counts as: decided by asking the database, not by the class of an exception."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connections, transaction

from django_jobs import Retry, registry
from django_jobs.conf import Conf
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.workers.errors import describe
from django_jobs.workers.executor import Assigned, Executor
from django_jobs.workers.runner import Runner
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.engines.common import on_sqlite
from tests.harness import wait_for
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import SETTINGS, Tables
from tests.threads import session

pytestmark = with_tables


class Probes:
    """Counts the questions whether the database is there, and answers as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: Engine, answer: bool) -> None:
        self.answer = answer
        self.asked = 0
        monkeypatch.setattr(engine, "probe", self)

    def __call__(self, timeout: float) -> bool:
        self.asked += 1
        return self.answer


def run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, function: Any, settings: Conf = SETTINGS, **values: Any
) -> Done | Settlement:
    """Run a function as a job of its own type."""
    job_type = replace(nothing.job_type, name="test", function=lambda number: function(), max_attempts=8)
    monkeypatch.setattr(registry, "_types", {"test": job_type})
    payload = json.dumps({"args": [0], "kwargs": {}})
    given = {"id": 1, "token": 1, "locked_by": "inc:1", "type": "test", "payload": payload, "attempts": 0}
    job = Claimed(**{**given, "max_attempts": 8, "idempotency_key": None, "timeout": None, "slot": None, **values})
    return Runner(engine, settings, "host:1").run(job, None)  # type: ignore[arg-type]


def raises(error: BaseException) -> Any:
    def function() -> None:
        raise error

    return function


def end(outcome: Done | Settlement) -> tuple[str, str, str]:
    assert isinstance(outcome, Settlement)
    return outcome.status, outcome.counts, outcome.cause


def sql(engine: Engine, *statements: str) -> Any:
    def function() -> None:
        with connections[engine.alias].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    return function


@pytest.mark.parametrize(
    "error", [OperationalError("gone"), InterfaceError("closed"), OperationalError("no such column")]
)
@pytest.mark.parametrize(
    ("there", "expected"), [(True, ("ready", "attempt", "raised")), (False, ("ready", "loss", "database away"))]
)
def test_the_probe_decides_whether_the_database_was_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, there: bool, expected: tuple[str, str, str]
) -> None:
    Probes(monkeypatch, engine, there)
    outcome = run(engine, monkeypatch, raises(error))
    assert end(outcome) == expected
    assert isinstance(outcome, Settlement)
    assert outcome.delay is not None
    assert (outcome.delay == 5.0) is not there
    assert str(error) in (outcome.error or "")


@pytest.mark.parametrize("error", [IntegrityError("taken"), ValueError("database away"), SystemExit(1), KeyError("x")])
def test_an_error_that_says_nothing_of_the_connection_asks_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    probes = Probes(monkeypatch, engine, False)
    assert end(run(engine, monkeypatch, raises(error))) == ("ready", "attempt", "raised")
    assert probes.asked == 0


def test_a_mistake_in_sql_counts_as_raised(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    # On SQLite this has the class of an unreachable database.
    assert end(run(engine, monkeypatch, sql(engine, "SELECT typo FROM app_effect"))) == ("ready", "attempt", "raised")


@on_postgresql
def test_a_statement_that_takes_too_long_counts_as_raised(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = sql(engine, "SET statement_timeout = 50", "SELECT pg_sleep(5)")
    try:
        assert end(run(engine, monkeypatch, slow)) == ("ready", "attempt", "raised")
    finally:
        connections[engine.alias].close()


def test_the_last_attempt_ends_as_dead_and_a_loss_never_does_here(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert end(run(engine, monkeypatch, raises(ValueError()), attempts=7)) == ("dead", "attempt", "raised")
    assert end(run(engine, monkeypatch, raises(Retry(5)), attempts=7)) == ("dead", "attempt", "retry")
    Probes(monkeypatch, engine, False)
    lost = run(engine, monkeypatch, raises(OperationalError()), attempts=7)
    assert end(lost) == ("ready", "loss", "database away")


def test_transactions_left_open_on_every_database_are_rolled_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_open() -> str:
        for alias in ("default", "lite"):
            with connections[alias].cursor() as cursor:
                cursor.execute("BEGIN")
                Effect.objects.using(alias).create(key="left open")
        return "fine"

    outcome = run(engine, monkeypatch, leave_open)
    assert end(outcome) == ("ready", "attempt", "raised")
    assert "with a transaction open on the database 'default', 'lite'" in str(outcome)
    for alias in ("default", "lite"):
        assert not Effect.objects.using(alias).exists()
        Effect.objects.using(alias).create(key="next")  # what the next job on this thread writes stays
        connections[alias].close()
        assert Effect.objects.using(alias).count() == 1


def test_an_error_stays_the_error_of_a_handler_that_also_left_a_transaction_open(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_open_and_raise() -> None:
        transaction.atomic(using=engine.alias).__enter__()
        raise LookupError("the reason")

    outcome = run(engine, monkeypatch, leave_open_and_raise)
    assert isinstance(outcome, Settlement)
    assert "LookupError: the reason" in (outcome.error or "")
    assert not connections[engine.alias].in_atomic_block


def test_an_error_of_our_own_in_a_run_is_a_loss_and_no_end_of_the_thread(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(engine)
    worker = tables.worker()
    monkeypatch.setattr(Executor, "_run", raises(MemoryError()))
    jobs = tables.claimed(3)
    tables.seat(jobs)
    for number, job in enumerate(jobs):
        worker._free.remove(number)
        worker._executor.give(Assigned(number, job, 0.0))
    worker._executor._threads[0].start()
    ended = [worker._writer._ended.get(timeout=5) for _ in jobs]
    assert [end(item.outcome) for item in ended if item] == [("ready", "loss", "worker failed")] * 3
    wait_for(lambda: worker._executor.in_hand == 0)


def refuses(monkeypatch: pytest.MonkeyPatch, alias: str) -> Any:
    """Return a handler that meets a server which is just starting: it lets nobody in, and a moment later everybody."""

    def function() -> None:
        connections[alias].close()
        with monkeypatch.context() as patches:
            settings = connections[alias].settings_dict
            patches.setitem(settings, "PORT", "1")
            patches.setitem(settings, "NAME", "/nowhere/at/all" if alias == "lite" else settings["NAME"])
            with connections[alias].cursor() as cursor:
                cursor.execute("SELECT 1")

    return function


def test_a_connect_that_fails_to_the_jobs_database_counts_as_lost_though_the_probe_succeeds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(engine, monkeypatch, refuses(monkeypatch, engine.alias))
    assert end(outcome) == ("ready", "loss", "connection broke")


def test_a_connect_that_fails_behind_an_error_of_the_handlers_own_counts_as_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refuses(monkeypatch, engine.alias)

    def function() -> None:
        try:
            refused()
        except OperationalError:
            raise LookupError("no such order") from None

    assert end(run(engine, monkeypatch, function)) == ("ready", "loss", "connection broke")


def test_a_connect_that_fails_to_another_database_is_the_handlers_own_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "lite" if engine.alias == "default" else "default"
    outcome = run(engine, monkeypatch, refuses(monkeypatch, other))
    assert end(outcome) == ("ready", "attempt", "raised")


@on_postgresql
@pytest.mark.parametrize(
    ("there", "expected"), [(True, ("ready", "attempt", "raised")), (False, ("ready", "loss", "database away"))]
)
def test_a_write_that_a_server_refuses_as_read_only_is_the_handlers_fault_unless_the_probe_says_so_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, there: bool, expected: tuple[str, str, str]
) -> None:
    Probes(monkeypatch, engine, there)
    writes = sql(engine, "SET default_transaction_read_only = on", "UPDATE app_effect SET run = 1")
    assert end(run(engine, monkeypatch, writes)) == expected


def test_an_error_at_the_end_of_an_outage_counts_as_lost(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(type(engine), "_answers", lambda self, timeout: False)
        assert not engine.probe(timeout=1)
    assert end(run(engine, monkeypatch, raises(OperationalError()))) == ("ready", "loss", "database away")
    monkeypatch.setattr(engine, "_away_at", time.monotonic() - 4)
    assert end(run(engine, monkeypatch, raises(OperationalError()))) == ("ready", "attempt", "raised")


@on_sqlite
def test_a_handler_that_was_locked_out_by_another_writer_is_charged_as_for_any_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.workers.verdict.connect_timeout", lambda lease: 0.2)
    with session(engine.alias) as other:
        other.sql("BEGIN EXCLUSIVE")
        outcome = run(engine, monkeypatch, raises(OperationalError("database is locked")))
        other.sql("ROLLBACK")
    assert end(outcome) == ("ready", "attempt", "raised")


@on_postgresql
def test_a_session_that_was_ended_between_two_jobs_costs_the_second_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = sql(engine, "SELECT 1")
    runner_connection = connections[engine.alias]
    assert isinstance(run(engine, monkeypatch, ask), Done)
    raw: Any = runner_connection.connection
    with session(engine.alias) as other:
        other.sql("SELECT pg_terminate_backend(%s, 10000)", raw.info.backend_pid)
    assert isinstance(run(engine, monkeypatch, ask), Done)


@pytest.mark.parametrize("text", ["x" * 5000, "two\nlines " * 500, "y" * 500])
def test_an_error_in_short_is_one_line_of_at_most_500_characters(text: str) -> None:
    short = describe(ValueError(text))
    assert (len(short) <= 500, len(short.splitlines())) == (True, 1)


# Memory.


def test_memory_that_a_run_alone_may_not_have_convicts_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, solo_memory=64 * 2**20)
    ended = run(engine, monkeypatch, lambda: bytearray(2**40), settings)
    assert isinstance(ended, Settlement)
    assert (ended.status, ended.counts, ended.cause, ended.delay) == ("dead", "loss", "out of memory", None)
    first, _, rest = str(ended.error).partition("\n")
    assert first == "Ran alone, and wanted more memory than SOLO_MEMORY allows (64 MiB)."
    assert rest.rstrip().endswith("MemoryError")
    assert json.loads(str(ended.entry))["error"] == first


def test_without_a_limit_of_ours_a_want_of_memory_is_an_error_like_any(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run(engine, monkeypatch, lambda: bytearray(2**50))
    assert isinstance(ended, Settlement)
    assert (ended.status, ended.counts, ended.cause) == ("ready", "attempt", "raised")


def test_any_other_error_under_a_limit_is_the_jobs_own(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, solo_memory=64 * 2**20)
    ended = run(engine, monkeypatch, raises(ValueError("no")), settings)
    assert isinstance(ended, Settlement)
    assert (ended.status, ended.counts, ended.cause) == ("ready", "attempt", "raised")
