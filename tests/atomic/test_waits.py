"""Atomic runs that wait: for other transactions, for their turn, for too long; and what is seen of them meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_jobs import log
from django_jobs.engines import postgresql_atomic, sqlite_atomic
from django_jobs.engines.base import Engine
from django_jobs.engines.values import released
from django_jobs.models import Job
from django_jobs.workers.executor import Assigned
from django_jobs.workers.runner import Runner
from tests.app.atomic_jobs import (
    idle,
    isolation,
    lock_both,
    read_and_write,
    sleep_in_the_database,
    write_and,
    write_and_wait,
    write_until_asked,
)
from tests.app.models import Effect
from tests.atomic.common import Case, effects
from tests.harness import wait_for
from tests.processes.common import on_postgresql, on_sqlite, wait_seconds, with_tables
from tests.threads import Session, session, together

pytestmark = with_tables
FAST = {"lease": 3.0}


@on_postgresql
def test_of_two_atomic_jobs_in_a_deadlock_one_is_called_again_in_place_and_nothing_counts(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("a", "b"):
        Effect.objects.using(engine.alias).create(key=key)
    cases = [Case(engine, lock_both, "a", "b", str(tmp_path)), Case(engine, lock_both, "b", "a", str(tmp_path))]
    with caplog.at_level("INFO"):
        together([case.run for case in cases])
    assert [case.came_to for case in cases] == [("done", 0, 0, [])] * 2
    assert [case.row.token for case in cases] == [1, 1]
    again = [line.message for line in caplog.records if "is rolled back and called again" in line.message]
    assert len(again) == 1
    assert "deadlock detected" in again[0]


@on_postgresql
def test_what_is_in_the_way_each_time_counts_as_raised_after_three_more_calls(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        case = Case(engine, write_and, "a", "again and again").run()
    assert case.came_to == ("ready", 1, 0, ["raised"])
    assert "in the way" in case.row.last_error
    assert len([line for line in caplog.records if "called again" in line.message]) == 3
    assert effects(engine) == []


@on_postgresql
def test_a_run_that_is_to_stop_is_not_called_again(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(engine, write_and, "a", "again and again")
    case.tables.region.ask_to_stop()
    with caplog.at_level("INFO"):
        case.run()
    assert case.came_to == ("ready", 1, 0, ["raised"])
    assert [line for line in caplog.records if "called again" in line.message] == []


@on_postgresql
def test_the_deadline_within_a_statement_rolls_back(engine: Engine) -> None:
    case = Case(engine, sleep_in_the_database, "a", 30, timeout=0.5).run()
    assert case.came_to == ("ready", 1, 0, ["deadline"])
    assert effects(engine) == []


@on_postgresql
def test_the_server_ends_statements_at_the_deadline_also_when_nobody_else_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.workers.statements.cancel", lambda sessions: None)
    case = Case(engine, sleep_in_the_database, "a", 30, timeout=0.5).run()
    assert case.came_to == ("ready", 1, 0, ["deadline"])
    assert "canceling statement due to statement timeout" in case.row.last_error


@on_postgresql
@pytest.mark.parametrize("own", ["0", "200ms", "1min", "2h", "20d"])
def test_a_shorter_time_out_of_the_projects_own_holds_and_ours_end_with_the_transaction(
    engine: Engine, own: str
) -> None:
    seconds = {"0": 60.0, "200ms": 0.2, "1min": 60.0, "2h": 60.0, "20d": 60.0}[own]
    with session(engine.alias) as found:
        found.sql(f"SET statement_timeout = '{own}'")
        found.begin()
        mark = found.do(lambda: engine.mark(30.0, 60.0))
        rows = found.sql("SELECT extract(epoch FROM replace(current_setting('statement_timeout'), 'ms', 'milliseconds')"
                         "::interval)::float8, current_setting('idle_in_transaction_session_timeout')")  # fmt: skip
        assert rows == [(seconds, "30s")]
        assert found.do(lambda: engine.is_marked(mark, 2.0))
        assert found.sql("SHOW lock_timeout") == [("2s",)]
        found.commit()
        assert found.sql("SHOW statement_timeout")[0][0] == own
        assert found.sql("SHOW idle_in_transaction_session_timeout") == [("0",)]


@on_postgresql
def test_a_transaction_that_was_idle_for_too_long_counts_as_raised_and_names_the_setting(
    engine: Engine, tmp_path: Path
) -> None:
    case = Case(engine, idle, "a", str(tmp_path / "go"), atomic_idle=0.3)
    with session(engine.alias) as thread:
        running = thread.start(case.run)
        wait_for(lambda: (tmp_path / "go.1").exists())
        wait_for(lambda: not idle_in_transaction(), what="the server has ended it")
        (tmp_path / "go").touch()
        running.result(30)
    assert case.came_to == ("ready", 1, 0, ["raised"])
    assert "ATOMIC_IDLE (0.3 s)" in case.row.last_error
    assert effects(engine) == []


def idle_in_transaction() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        return bool(cursor.fetchone()[0])


def test_the_latest_progress_is_stored_with_the_end(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.1").touch()
    case = Case(engine, write_and_wait, "a", str(tmp_path)).run()
    assert (case.stored, case.row.progress) == ("done", {"done": 2, "total": 2, "note": "ended"})


@on_postgresql
def test_an_atomic_run_holds_up_neither_heartbeat_nor_progress_nor_a_person(engine: Engine, tmp_path: Path) -> None:
    case = Case(engine, write_and_wait, "a", str(tmp_path))
    with session(engine.alias) as thread, session(engine.alias) as other:
        running = thread.start(case.run)
        wait_for(lambda: (tmp_path / "a.1.started").exists())
        other.sql("SET lock_timeout = '1s'")
        assert other.do(lambda: engine.extend([case.claimed.run], 30.0)) == {case.claimed.id: False}
        assert other.sql("SELECT id FROM django_jobs_job FOR UPDATE NOWAIT") == [(case.claimed.id,)]
        other.do(lambda: engine.store_progress([(case.claimed.run, '{"done": 1}')]))
        assert case.row.progress == {"done": 1}
        (tmp_path / "a.1").touch()
        running.result(30)
    assert case.came_to == ("done", 0, 0, [])


@on_postgresql
def test_a_job_that_a_person_cancelled_while_it_ran_is_cancelled_with_what_it_returned(
    engine: Engine, tmp_path: Path
) -> None:
    case = Case(engine, write_until_asked, "a", str(tmp_path / "started"))
    with session(engine.alias) as thread:
        running = thread.start(case.run)
        wait_for(lambda: (tmp_path / "started").exists())
        Job.objects.using(engine.alias).get().cancel()
        case.tables.region.ask_to_stop()
        running.result(30)
    assert (case.came_to[0], case.stored, case.row.result) == ("cancelled", "cancelled", "asked")
    assert effects(engine) == ["a"]


def test_a_type_that_is_atomic_for_long_is_warned_about_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "_long_atomic", set())
    monkeypatch.setattr(engine, "long_atomic", 0.0)
    for key in ("a", "b"):
        Case(engine, write_and, key, "return").run()
    cost = {"default": "keeps the database from removing old row versions", "lite": "nothing else can be written"}
    warned = [line.message for line in caplog.records if "is atomic and took" in line.message]
    assert len(warned) == 1
    assert cost[engine.alias] in warned[0]


@pytest.mark.fast
def test_atomic_jobs_are_long_from_a_second_on_sqlite_and_from_a_minute_on_postgresql() -> None:
    assert sqlite_atomic.SQLiteAtomic.long_atomic == 1.0
    assert postgresql_atomic.PostgreSQLAtomic.long_atomic == 60.0


@on_sqlite
def test_atomic_jobs_of_one_process_run_one_at_a_time_however_long_each_takes(engine: Engine, tmp_path: Path) -> None:
    first, second = (Case(engine, write_and_wait, key, str(tmp_path)) for key in ("a", "b"))
    with session(engine.alias) as one, session(engine.alias) as two:
        two.sql("PRAGMA busy_timeout = 50")
        runs = [one.start(first.run)]
        wait_for(lambda: (tmp_path / "a.1.started").exists())
        runs.append(two.start(second.run))
        # Longer than it would wait for the file.
        wait_seconds(0.5)
        assert not (tmp_path / "b.1.started").exists()
        (tmp_path / "a.1").touch()
        (tmp_path / "b.1").touch()
        for run in runs:
            run.result(30)
    assert [case.came_to for case in (first, second)] == [("done", 0, 0, [])] * 2
    assert effects(engine) == ["a", "b"]


@on_sqlite
@pytest.mark.parametrize("stops", [True, False], ids=["stop", "late"])
def test_a_run_that_gets_no_turn_has_called_nothing_and_is_charged_nothing(engine: Engine, stops: bool) -> None:
    case = Case(engine, write_and, "a", "return", timeout=60 if stops else 0.3)
    with session(engine.alias) as holder, session(engine.alias) as thread:
        turn = engine.turn(lambda: True)
        assert holder.do(turn.__enter__)
        running = thread.start(case.run)
        if stops:
            case.tables.region.ask_to_stop()
        running.result(30)
        holder.do(lambda: turn.__exit__(None, None, None))
    assert case.came_to == ("ready", 0, 0, [])
    assert effects(engine) == []


@on_sqlite
def test_a_file_that_another_process_holds_costs_no_attempt(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(engine, write_and, "a", "return")
    connection: Any = connections[engine.alias]
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.1)
    other.begin()
    other.sql("UPDATE app_effect SET run = run")
    runner = Runner(engine, case.tables.plan.settings, "host:1")
    end = case.worker._executor._run(runner, Assigned(0, case.claimed, time.monotonic()), 0)
    other.rollback()
    assert end.outcome == released(case.claimed.run)
    assert effects(engine) == []


@on_sqlite
def test_an_atomic_run_has_the_write_lock_before_it_writes(engine: Engine, tmp_path: Path, other: Session) -> None:
    case = Case(engine, read_and_write, "a", str(tmp_path / "go"))
    with session(engine.alias) as thread:
        thread.do(lambda: connections[engine.alias].ensure_connection())
        thread.do(lambda: setattr(connections[engine.alias], "transaction_mode", None))
        running = thread.start(case.run)
        wait_for(lambda: (tmp_path / "go.1").exists())
        other.sql("PRAGMA busy_timeout = 0")
        with pytest.raises(Exception, match="locked"):
            other.sql("BEGIN IMMEDIATE")
        (tmp_path / "go").touch()
        running.result(30)
        assert thread.do(lambda: getattr(connections[engine.alias], "transaction_mode")) is None  # noqa: B009
    assert case.stored == "done"


@on_postgresql
def test_a_connection_may_serve_plain_jobs_after_an_atomic_one(engine: Engine) -> None:
    assert Case(engine, isolation).run().stored == "done"
    raw: Any = connections[engine.alias].connection
    assert raw.isolation_level is None
    assert connections[engine.alias].execute_wrappers == []
    assert connections["lite"].execute_wrappers == []
