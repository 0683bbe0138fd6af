"""What an atomic job wrote is there if, and only if, the end of its run says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connections

from django_jobs.engines.base import Engine
from django_jobs.engines.idle import in_transaction
from django_jobs.models import Job
from tests.app.atomic_jobs import isolation, write_and, write_anywhere
from tests.app.jobs import leave_effect
from tests.app.models import Effect
from tests.atomic.common import Case, effects
from tests.harness import wait_for
from tests.processes.common import on_postgresql, on_sqlite, with_tables
from tests.threads import Session, session

pytestmark = with_tables
FAILED = ("failed", 0, 0, ["failed"])
RAISED = ("ready", 1, 0, ["raised"])


@pytest.mark.parametrize(("how", "expected"), [
    ("return", ("done", 0, 0, [])),
    ("return Fail", FAILED),
    ("return Retry", ("ready", 1, 0, ["retry"])),
    ("return Snooze", ("ready", 0, 0, ["snoozed"])),
    ("return Cancel", ("cancelled", 0, 0, ["cancelled"])),
])  # fmt: skip
def test_what_was_written_is_committed_with_the_end_that_was_returned(
    engine: Engine, how: str, expected: tuple[Any, ...]
) -> None:
    case = Case(engine, write_and, "a", how).run()
    assert (case.came_to, case.stored) == (expected, expected[0])
    assert effects(engine) == ["a"]


@pytest.mark.parametrize(("how", "expected"), [
    ("raise", RAISED),
    ("raise Fail", FAILED),
    ("raise Retry", ("ready", 1, 0, ["retry"])),
    ("raise Snooze", ("ready", 0, 0, ["snoozed"])),
    ("raise Cancel", ("cancelled", 0, 0, ["cancelled"])),
    ("no JSON", RAISED),
    ("wrong reference", RAISED),
    ("leave open elsewhere", RAISED),
])  # fmt: skip
def test_what_was_written_is_rolled_back_when_the_run_raised(
    engine: Engine, how: str, expected: tuple[Any, ...]
) -> None:
    case = Case(engine, write_and, "a", how).run()
    assert (case.came_to, case.stored) == (expected, None)
    assert effects(engine) == []


ENDED = "ended the transaction by a COMMIT or ROLLBACK"
BROKEN = [
    ("commit", "may not send COMMIT"),
    ("rollback", "may not send rollback"),
    ("begin", "may not send /* a comment */ BEGIN"),
    ("two statements", "may not send SELECT 1; COMMIT"),
    ("swallowed commit", "may not send COMMIT"),
    ("driver rollback", ENDED),
    ("write elsewhere", "An atomic job wrote to the database"),
    ("swallowed write elsewhere", "other_databases=True"),
    ("error without savepoint", "caught an error"),
    ("set rollback", "asked for a rollback"),
    ("durable", "began a durable block"),
    ("django commit", "called transaction.commit()"),
    ("django autocommit", "or set_autocommit()"),
    ("close", "closed the connection"),
    ("leave open", "left an atomic block open"),
]


def assert_broken(case: Case, said: str) -> None:
    assert (case.came_to, case.stored) == (FAILED, None)
    assert "AtomicBroken" in case.row.last_error
    assert said in case.row.last_error
    assert connections[case.engine.alias].in_atomic_block is False


@pytest.mark.parametrize(("how", "said"), BROKEN, ids=[how for how, _ in BROKEN])
def test_a_handler_that_breaks_the_transaction_fails_at_once_and_leaves_nothing(
    engine: Engine, how: str, said: str
) -> None:
    assert_broken(Case(engine, write_and, "a", how).run(), said)
    assert effects(engine) == []
    assert not Effect.objects.using("lite" if engine.alias == "default" else "default").exists()
    assert Case(engine, write_and, "b", "return").run().came_to[0] == "done"


@pytest.mark.parametrize("how", ["driver commit", "driver commit and begin"])
def test_a_commit_past_django_is_found_and_the_job_does_not_run_again(engine: Engine, how: str) -> None:
    assert_broken(Case(engine, write_and, "a", how).run(), ENDED)
    assert effects(engine) == ["a"]


@pytest.mark.parametrize("how", ["driver commit and raise", "driver commit and raise Retry", "inner commit and raise"])
def test_a_function_that_raises_after_a_commit_of_its_own_is_not_called_again(engine: Engine, how: str) -> None:
    assert_broken(Case(engine, write_and, "a", how).run(), ENDED)
    assert effects(engine) == ["a"]


@on_postgresql
def test_an_error_of_the_database_that_was_caught_fails_the_job_with_its_remedy_and_is_shown(engine: Engine) -> None:
    case = Case(engine, write_and, "a", "swallowed error").run()
    assert_broken(case, "caught an error of the database")
    assert "no_such_column" in case.row.last_error
    assert "_swallow" in case.row.last_error  # the line of the function
    assert effects(engine) == []


@on_postgresql
@pytest.mark.parametrize("how", ["search path", "role", "read only"])
def test_settings_under_which_the_end_cannot_be_written_fail_the_job_with_their_remedy(
    engine: Engine, how: str
) -> None:
    assert_broken(Case(engine, write_and, "a", how).run(), "left settings under which")
    assert effects(engine) == []


def test_a_function_that_deletes_the_row_of_its_job_fails_it(engine: Engine) -> None:
    assert_broken(Case(engine, write_and, "a", "delete own row").run(), "the row of its own job")
    assert effects(engine) == []


@on_postgresql
def test_settings_that_are_reset_are_no_end_of_the_transaction(engine: Engine) -> None:
    assert Case(engine, write_and, "a", "reset").run().came_to == ("done", 0, 0, [])
    assert effects(engine) == ["a"]


@pytest.mark.parametrize("how", ["error in a savepoint", "read elsewhere"])
def test_what_leaves_the_transaction_whole_is_allowed(engine: Engine, how: str) -> None:
    assert Case(engine, write_and, "a", how).run().came_to == ("done", 0, 0, [])
    assert effects(engine) == ["a"]


def test_a_type_that_says_so_may_write_to_other_databases(engine: Engine) -> None:
    assert Case(engine, write_anywhere, "a", "write elsewhere").run().came_to == ("done", 0, 0, [])
    other = "lite" if engine.alias == "default" else "default"
    assert Effect.objects.using(other).get().key == "elsewhere"


def test_jobs_that_were_enqueued_inside_commit_with_it(engine: Engine) -> None:
    assert Case(engine, write_and, "a", "follow up").run().stored == "done"
    assert Job.objects.using(engine.alias).filter(type=leave_effect.name, status="ready").count() == 1


def test_a_hook_that_raises_is_logged_against_the_job_that_is_done(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(engine, write_and, "a", "hook raises").run()
    assert (case.came_to, case.stored, case.counted) == (("done", 0, 0, []), "done", {"done": 1})
    assert effects(engine) == ["a"]
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == [
        f"Job {case.claimed.id} {write_and.name} is committed, but a hook of its transaction (on_commit) failed; "
        "it does not run again: the hook"
    ]


def test_a_hook_may_do_what_the_transaction_may_not(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    assert Case(engine, write_and, "a", "hook writes").run().came_to == ("done", 0, 0, [])
    assert effects(engine) == ["a", "hook"]
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == []


def test_a_hook_that_leaves_a_transaction_open_does_not_undo_that_the_job_is_done(engine: Engine) -> None:
    case = Case(engine, write_and, "a", "hook leaves open").run()
    assert (case.came_to, case.stored) == (("done", 0, 0, []), "done")
    assert not in_transaction(connections[engine.alias])


@on_postgresql
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_transaction_is_read_committed_whatever_the_projects_default(engine: Engine, level: str) -> None:
    import psycopg

    connection: Any = connections[engine.alias]
    connection.ensure_connection()
    raw, wanted = connection.connection, psycopg.IsolationLevel[level.replace(" ", "_").upper()]
    raw.isolation_level = wanted
    raw.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
    case = Case(engine, isolation).run()
    assert (case.stored, case.row.result) == ("done", "read committed")
    assert connection.connection is raw
    assert raw.isolation_level == wanted
    raw.close()
    connection.close()


@on_postgresql
def test_deferred_constraints_are_checked_before_the_jobs_row_is_locked(engine: Engine) -> None:
    case = Case(engine, write_and, "a", "wrong reference").run()
    assert "violates foreign key constraint" in case.row.last_error
    assert "in check_deferred" in case.row.last_error


@on_sqlite
def test_a_constraint_that_only_the_commit_checks_is_an_error_of_the_attempt(engine: Engine) -> None:
    case = Case(engine, write_and, "a", "wrong reference").run()
    assert "FOREIGN KEY constraint failed" in case.row.last_error


def take_over(engine: Engine, case: Case) -> None:
    with session(engine.alias) as found:
        found.sql("UPDATE django_jobs_job SET token = token + 1, locked_by = 'other:1'")


def test_a_run_that_lost_its_lease_leaves_nothing_and_is_counted_so(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(engine, write_and, "a", "return")
    take_over(engine, case)
    case.run()
    assert (case.stored, case.counted) == (None, {"lost_leases": 1})
    assert (case.row.status, case.row.locked_by, case.row.history) == ("running", "other:1", [])
    assert effects(engine) == []
    assert [line.message for line in caplog.records if "Lost lease" in line.message] != []


@on_postgresql
def test_a_row_that_somebody_holds_at_the_end_costs_a_loss_and_no_attempt(engine: Engine, other: Session) -> None:
    case = Case(engine, write_and, "a", "return", lease=1.0)
    other.begin()
    other.sql("SELECT id FROM django_jobs_job FOR UPDATE")
    with session(engine.alias) as thread:
        held = thread.start(case.run)
        # The completion has been given up, and what is written instead waits as well.
        wait_for(settles)
        other.rollback()
        held.result(30)
    assert case.came_to == ("ready", 0, 1, ["outcome lost"])
    assert effects(engine) == []


def settles() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return any("Ends a batch of runs in any way but done" in query for (query,) in cursor.fetchall())


@on_postgresql
def test_a_connection_that_broke_under_a_handler_which_caught_that_is_a_loss(engine: Engine) -> None:
    case = Case(engine, write_and, "a", "break connection").run()
    assert case.came_to == ("ready", 0, 1, ["connection broke"])
    assert effects(engine) == []


def test_a_result_is_stored_as_that_of_any_job(engine: Engine) -> None:
    assert json.dumps(Case(engine, write_and, "a", "return").run().row.result) == '"result"'
