"""Workers that claim at the same moment: forced where it can be, crowded where it cannot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from django.db import OperationalError, connections, transaction
from psycopg import IsolationLevel
from psycopg.errors import SerializationFailure

from django_jobs.engines.values import ClaimResult, released
from tests.app.jobs import nothing
from tests.engines.common import (
    LANES,
    TYPES,
    beside_others,
    claim,
    claim_one,
    enqueue,
    ids,
    on_postgresql,
    order,
    row,
    sql,
)
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine
    from tests.threads import Session

pytestmark = beside_others
GATE = 77


@pytest.fixture
def gate(engine: Engine) -> Iterator[Session]:
    """Return a session in whose statements statement_timestamp() waits while somebody holds the gate.

    So a claim of it can be stopped between its snapshot, in which a row is free, and its lock on that row.
    """
    sql(
        engine,
        f"""
        CREATE SCHEMA gate;
        CREATE FUNCTION gate.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            PERFORM pg_advisory_lock_shared({GATE});
            PERFORM pg_advisory_unlock_shared({GATE});
            RETURN pg_catalog.statement_timestamp();
        END $$;
        """,
    )
    try:
        with session(engine.alias) as found:
            found.sql("SET search_path = gate, pg_catalog, public")
            yield found
    finally:
        sql(engine, "SELECT pg_advisory_unlock_all(); DROP SCHEMA gate CASCADE")


def close_gate(engine: Engine) -> None:
    sql(engine, "SELECT pg_advisory_lock(%s)", GATE)


def open_gate(engine: Engine) -> None:
    sql(engine, "SELECT pg_advisory_unlock(%s)", GATE)


@on_postgresql
def test_a_job_that_another_worker_took_between_snapshot_and_lock_is_not_taken_twice(
    engine: Engine, gate: Session
) -> None:
    first, second = ids(enqueue(2))
    close_gate(engine)
    late = gate.start(lambda: claim(engine, 1, locked_by="late:1", lanes=LANES))
    wait_for_blocked()
    assert ids(claim(engine, 1)) == [first]
    open_gate(engine)
    # It goes on to the next row in the same statement: no empty claim.
    assert ids(late.result(10)) == [second]
    assert row(engine, first)["locked_by"] != "late:1"


@on_postgresql
def test_a_job_that_was_taken_and_given_back_between_snapshot_and_lock_is_taken_as_it_is_now(
    engine: Engine, gate: Session
) -> None:
    (made,) = ids(enqueue(1))
    close_gate(engine)
    late = gate.start(lambda: claim(engine, 1, locked_by="late:1", lanes=LANES))
    wait_for_blocked()
    engine.settle([released(claim_one(engine))], max_uncounted=10)
    open_gate(engine)
    ((job_id, token, locked_by, *_),) = late.result(10)
    assert (job_id, token, locked_by) == (made, 2, "late:1")


@on_postgresql
def test_a_job_that_was_put_off_between_snapshot_and_lock_is_not_taken(engine: Engine, gate: Session) -> None:
    (made,) = ids(enqueue(1))
    close_gate(engine)
    late = gate.start(lambda: engine.claim(order(lanes=LANES)))
    wait_for_blocked()
    sql(engine, "UPDATE django_jobs_job SET run_at = clock_timestamp() + interval '1 hour' WHERE id = %s", made)
    open_gate(engine)
    assert late.result(10) == ClaimResult([], 0, 0)


@on_postgresql
def test_a_parked_job_that_another_worker_took_between_snapshot_and_lock_is_not_taken_twice(
    engine: Engine, gate: Session
) -> None:
    (made,) = ids(enqueue(1))
    assert engine.claim(order(types=())).parked == 1
    close_gate(engine)
    late = gate.start(lambda: engine.claim_parked(order(locked_by="late:1")))
    wait_for_blocked()
    assert ids(engine.claim_parked(order()).jobs) == [made]
    open_gate(engine)
    assert late.result(10) == ClaimResult([], 0, 0)


@on_postgresql
def test_a_job_in_another_workers_hands_is_stepped_over_without_waiting(engine: Engine) -> None:
    first, second = ids(enqueue(2))
    with session(engine.alias) as other:
        other.begin()
        assert other.do(lambda: ids(claim(engine))) == [first]
        assert ids(claim(engine, 10)) == [second]
        assert claim(engine, 10) == []
        other.rollback()
    assert ids(claim(engine, 10)) == [first]


@pytest.mark.parametrize("attempt", range(5))
def test_twenty_workers_and_one_job_make_one_claim(engine: Engine, attempt: int) -> None:
    (made,) = ids(enqueue(1))
    many = 20 if engine.name == "postgresql" else 8
    claims = together([partial(claim, engine, 5, locked_by=f"w:{number}") for number in range(many)])
    taken = [claimed for result in claims for claimed in result]
    assert [(claimed.id, claimed.token) for claimed in taken] == [(made, 1)]
    assert row(engine, made)["locked_by"] == taken[0].locked_by


@on_postgresql
@pytest.mark.parametrize("lanes", [1, 10])
def test_twenty_workers_on_a_full_queue_have_no_empty_claim(engine: Engine, lanes: int) -> None:
    for number in range(200):
        nothing.using(priority=number % lanes // 2, queue="ab"[number % lanes % 2]).enqueue()
    claims = together([partial(claim, engine, 10, locked_by=f"w:{number}") for number in range(20)])
    assert [len(result) for result in claims] == [10] * 20
    assert len({claimed.id for result in claims for claimed in result}) == 200


def test_workers_that_drain_a_queue_together_take_every_job_once(engine: Engine) -> None:
    made = ids(enqueue(120))

    def drain(number: int) -> list[int]:
        taken: list[int] = []
        while engine.look(None, TYPES).due_in == 0:
            taken += ids(claim(engine, 3, locked_by=f"w:{number}"))
        return taken

    taken = together([partial(drain, number) for number in range(8)])
    assert sorted(job_id for result in taken for job_id in result) == made


# Projects that chose another isolation level.


def repeatable_read(engine: Engine, session: Session, how: str) -> None:
    """Make the session one of a project whose database or settings say REPEATABLE READ."""

    def connect() -> None:
        connection = connections[engine.alias]
        connection.close()
        options = dict(connection.settings_dict["OPTIONS"])
        if how == "database":
            options["options"] = (
                "-c default_transaction_isolation=repeatable\\ read -c search_path=gate,pg_catalog,public"
            )
        else:
            options |= {
                "isolation_level": IsolationLevel.REPEATABLE_READ,
                "options": "-c search_path=gate,pg_catalog,public",
            }
        connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
        connection.ensure_connection()

    session.do(connect)


def isolation(engine: Engine) -> list[str]:
    """Return the isolation level of a statement alone and of one in a transaction."""
    alone = sql(engine, "SHOW transaction_isolation")[0][0]
    with transaction.atomic(using=engine.alias):
        return [alone, sql(engine, "SHOW transaction_isolation")[0][0]]


@on_postgresql
@pytest.mark.parametrize("how", ["database", "settings"])
def test_a_claim_is_read_committed_whatever_the_project_chose(engine: Engine, gate: Session, how: str) -> None:
    first, second = ids(enqueue(2))
    repeatable_read(engine, gate, how)
    assert "repeatable read" in gate.do(lambda: isolation(engine))
    gate.do(lambda: engine.prepare(10))
    assert gate.do(lambda: isolation(engine)) == ["read committed"] * 2
    close_gate(engine)
    late = gate.start(lambda: claim(engine, 1, lanes=LANES))
    wait_for_blocked()
    assert ids(claim(engine, 1)) == [first]
    open_gate(engine)
    assert ids(late.result(10)) == [second]


@on_postgresql
def test_without_it_a_claim_of_such_a_project_fails_when_another_was_faster(engine: Engine, gate: Session) -> None:
    enqueue(2)
    repeatable_read(engine, gate, "database")
    close_gate(engine)
    late = gate.start(lambda: claim(engine, 1, lanes=LANES))
    wait_for_blocked()
    claim(engine, 1)
    open_gate(engine)
    with pytest.raises(OperationalError) as caught:
        late.result(10)
    assert isinstance(caught.value.__cause__, SerializationFailure)


@on_postgresql
def test_a_prepared_connection_has_time_limits_and_is_prepared_once(engine: Engine) -> None:
    def prepared() -> list[object]:
        engine.prepare(2.5)
        found: list[object] = [
            sql(engine, f"SHOW {name}")[0][0]
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        ]
        connection = connections[engine.alias]
        with connection.execute_wrapper(_refuse):
            engine.prepare(2.5)
        connection.close()
        engine.prepare(1)
        return [*found, sql(engine, "SHOW statement_timeout")[0][0]]

    with session(engine.alias) as other:
        assert other.do(prepared) == ["2500ms", "2500ms", "2500ms", "1s"]


def _refuse(*args: object) -> None:
    raise AssertionError("a statement was sent")
