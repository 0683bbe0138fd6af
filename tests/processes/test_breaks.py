"""What goes wrong while the database answers: connections that break for ever, and refusals at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connections

from django_jobs import log
from django_jobs.engines.base import Engine
from django_jobs.workers.heart import Heart
from tests.engines.common import MIGRATE
from tests.harness import wait_for
from tests.processes.common import on_postgresql, wait_seconds, with_tables
from tests.processes.parts import Tables
from tests.threads import Session

pytestmark = with_tables


@pytest.fixture
def tries(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what grows with each try to set up a session, under a role that there is not."""
    found: list[str] = []
    real = engine.prepare

    def prepare(statement_timeout: float, role: str = "") -> None:
        found.append("try")
        real(statement_timeout, role)

    monkeypatch.setattr(engine, "prepare", prepare)
    monkeypatch.setattr(log, "_failures_said", {})
    options = {**connections.settings[engine.alias]["OPTIONS"], "assume_role": "nobody_here"}
    monkeypatch.setitem(connections.settings[engine.alias], "OPTIONS", options)
    return found


@contextmanager
def registering(tables: Tables) -> Iterator[Callable[[], bool]]:
    worker = tables.worker(begun=False)
    registered = threading.Event()

    def register() -> None:
        worker._register()
        connections.close_all()
        registered.set()

    thread = threading.Thread(target=register)
    thread.start()
    try:
        yield registered.is_set
    finally:
        tables.region.ask_to_stop()
        thread.join(10)


@contextmanager
def beating(tables: Tables) -> Iterator[Callable[[], bool]]:
    heart = Heart(tables.engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    heart.start()
    try:
        yield heart.ready.is_set
    finally:
        assert heart.end(10)


@on_postgresql
@pytest.mark.parametrize("working", [registering, beating])
def test_a_session_that_cannot_be_set_up_is_tried_slowly_and_said_once_in_five_seconds(
    engine: Engine, tries: list[str], working: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with working(Tables(engine)) as well:
        wait_for(lambda: len(tries) >= 2, 5.0, "the first break costs no pause")
        wait_seconds(2.0)
        assert len(tries) < 12
        said = [record.message for record in caplog.records if "the connection broke" in record.message]
        assert [len(said), "nobody_here" in said[0]] == [1, True]
        del connections.settings[engine.alias]["OPTIONS"]["assume_role"]
        wait_for(well, 5.0, "it works when it can")


def test_a_worker_that_was_full_keeps_the_pause_after_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Tables(engine).worker()
    worker._claimer.full = True  # and what it had in hand has ended since
    monkeypatch.setattr(engine, "probe", lambda timeout: False)
    worker._after_error(OperationalError("the database is away"))
    begun = time.monotonic()
    worker._wait(0.2)
    assert time.monotonic() - begun >= 0.2


@on_postgresql
def test_a_lock_on_the_whole_table_of_jobs_costs_a_lease_of_fitness(engine: Engine, other: Session) -> None:
    tables = Tables(engine, lease=3.0, heartbeat=1.0)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    began = time.monotonic()
    for ago in (3.2, 1.7, 0.1):  # steady for a lease
        heart._fitness.observe(1e9 - ago, began - ago)
    assert heart._fitness.fit(began)
    heart._link.connect()
    other.begin()
    other.sql("LOCK TABLE django_jobs_job IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(DatabaseError) as raised:
        engine.cancel_expired(1)
    heart._after_error("Taking back lost jobs", raised.value)
    other.rollback()
    assert not heart._fitness.fit(time.monotonic())
    engine.connection.close()


MISSING = ["SELECT 1 FROM no_such_table", "SELECT no_such_column FROM django_jobs_job"]
OTHER = ["SELECT 1 FRM django_jobs_job", "SET ROLE pg_monitor; SELECT 1 FROM django_jobs_job"]


@on_postgresql
@pytest.mark.parametrize("asked", OTHER)
def test_a_start_that_is_refused_for_another_reason_than_missing_tables_is_tried_again(
    engine: Engine, asked: str
) -> None:
    assert refused(engine, asked) == ""


@pytest.mark.parametrize("asked", MISSING)
def test_a_start_without_the_tables_of_this_version_is_refused(engine: Engine, asked: str) -> None:
    assert f"run {MIGRATE[engine.alias]}" in refused(engine, asked)


def refused(engine: Engine, asked: str) -> str:
    """Return why a supervisor gives up whose first statement fails as this one does."""
    tables = Tables(engine)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    with pytest.raises(DatabaseError) as raised, engine.connection.cursor() as cursor:
        cursor.execute(asked)
    heart._after_error("Starting", raised.value)
    engine.connection.close()
    return heart.refused
