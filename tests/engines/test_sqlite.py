"""What is SQLite's own: one writer at a time, and transactions that must take its lock when they begin."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import wait
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_jobs import StateConflict
from django_jobs.engines import engine as engine_of
from django_jobs.engines.values import Done, Run
from tests.acts import Ran
from tests.engines.common import LANES, alone, beside_others, claim, enqueue, ids, on_sqlite, row, running, settled
from tests.threads import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from django_jobs.engines.base import Engine
    from tests.threads import Session

pytestmark = on_sqlite
# How long a writer is given to get in between: it is blocked, or was there at once.
MOMENT = 0.2


@pytest.fixture
def deferring(engine: Engine) -> Iterator[Session]:
    """Return a session whose transactions begin without a lock, as those of a project without the option do."""
    with session(engine.alias) as found:
        found.do(lambda: connections[engine.alias].ensure_connection())
        found.do(lambda: setattr(connections[engine.alias], "transaction_mode", None))
        yield found


@beside_others
def test_a_prepared_connection_takes_the_write_lock_when_a_transaction_begins(
    engine: Engine, deferring: Session
) -> None:
    deferring.do(lambda: engine.prepare(1))
    deferring.begin()
    deferring.sql("SELECT count(*) FROM django_jobs_job")
    with session(engine.alias) as other:
        late = other.start(lambda: ids(enqueue(1)))
        wait([late], MOMENT)
        deferring.sql("UPDATE django_jobs_job SET losses = 0")
        deferring.commit()
        assert len(late.result(10)) == 1


WRITES: dict[str, Callable[[Engine, Run], Any]] = {
    "claim": lambda engine, run: claim(engine, lanes=LANES),
    "complete": lambda engine, run: engine.complete([Done(run, None)]),
    "settle": lambda engine, run: engine.settle([settled(run)], 10),
    "extend": lambda engine, run: engine.extend([run], 30),
    "store_progress": lambda engine, run: engine.store_progress([(run, "{}")]),
}


@beside_others
@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_the_engine_holds_the_write_lock_from_its_first_statement_to_its_last(
    engine: Engine, deferring: Session, name: str
) -> None:
    (run,) = running(engine)
    enqueue(1)
    with session(engine.alias) as other:
        late: list[Future[list[int]]] = []

        def let_another_write(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            if sql.startswith(("SELECT", "UPDATE")) and not late:
                late.append(other.start(lambda: ids(enqueue(1))))
                wait(late, MOMENT)
                assert not late[0].done()
            return result

        def write() -> None:
            with connections[engine.alias].execute_wrapper(let_another_write):
                WRITES[name](engine, run)
            assert connections[engine.alias].transaction_mode is None  # type: ignore[attr-defined]

        deferring.do(write)
        assert len(late[0].result(10)) == 1


@alone
def test_every_running_job_is_given_back_at_a_start_whatever_its_lease(engine: Engine) -> None:
    runs = running(engine, 3, lease=3600)
    enqueue(1)
    found = engine.expired(2)
    assert [(item.run, item.type) for item in found] == [(run, "tests.app.jobs.nothing") for run in runs[:2]]
    assert all(0 <= item.seconds < 5 for item in found)
    assert not engine.expired_exist()
    assert not engine.reaps_by_lease


@beside_others
@pytest.mark.parametrize("inside", [False, True])
def test_an_act_waits_for_another_writer_no_longer_than_an_enqueue(
    engine: Engine, deferring: Session, settings: Any, inside: bool
) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.2}
    (job,) = enqueue(1)
    with session(engine.alias) as other:
        before = deferring.sql("PRAGMA busy_timeout")
        other.begin()
        other.sql("UPDATE django_jobs_job SET losses = 0")
        if inside:
            deferring.begin()
        with pytest.raises(StateConflict, match=r"did not end within 0\.2 s \(ENQUEUE_TIMEOUT\)"):
            deferring.do(job.cancel)
        if inside:
            deferring.rollback()
        assert Ran("cancel", str(job.pk)).code == 2
        other.rollback()
    assert deferring.sql("PRAGMA busy_timeout") == before
    assert job.cancel().status == "cancelled"


# Whether the database answers and can be written.


@beside_others
def test_a_database_that_another_writer_holds_for_long_is_not_away(engine: Engine) -> None:
    with session(engine.alias) as other:
        other.sql("BEGIN EXCLUSIVE")
        began = time.monotonic()
        assert engine.probe(timeout=0.2)
        assert time.monotonic() - began >= 0.2  # it was waited for
        other.sql("ROLLBACK")
    assert not engine.was_away_since(began)
    assert engine.probe(timeout=0.2)


@beside_others
def test_a_probe_leaves_no_lock_and_changes_nothing(engine: Engine) -> None:
    (job,) = enqueue(1)
    before = row(engine, job.pk)
    assert engine.probe(timeout=1)
    assert row(engine, job.pk) == before
    assert len(ids(claim(engine))) == 1


@alone
def test_a_file_that_can_only_be_read_is_away(engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = tmp_path / "jobs.sqlite3"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE django_jobs_job (id INTEGER)")
    for mode, there in (("rw", True), ("ro", False)):
        settings = {**connections[engine.alias].settings_dict, "NAME": f"file:{file}?mode={mode}"}
        monkeypatch.setitem(connections.settings, mode, settings)
        assert engine_of(mode).probe(timeout=1) is there
