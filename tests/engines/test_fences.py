"""Every write of a worker names its run: job, token and holder; a run that is no longer the job's writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db.models.functions import Now

from django_jobs.engines.values import Done, Run
from tests.engines.common import (
    WORKER,
    alone,
    alter,
    beside_others,
    claim_one,
    clock,
    enqueue,
    ids,
    on_postgresql,
    row,
    rows,
    running,
    settled,
    sql,
)
from tests.threads import session, wait_for_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.engines.base import Engine

ENTRY = '{"cause": "test"}'

# Each writes for some runs and returns the ids for which it did, or None where nobody is told.
WRITES: dict[str, Callable[[Engine, Sequence[Run]], set[int] | None]] = {
    "complete": lambda engine, runs: set(engine.complete([Done(run, '{"a":1}') for run in runs])),
    "settle": lambda engine, runs: set(
        engine.settle([settled(run, counts="attempt", error="e", entry=ENTRY, delay=0.0) for run in runs], 10)
    ),
    "extend": lambda engine, runs: set(engine.extend(runs, 3600.0)),
    "store_progress": lambda engine, runs: engine.store_progress([(run, '{"done":1}') for run in runs]),
}
every_write = pytest.mark.parametrize("name", WRITES)

WRONG: dict[str, Callable[[Run], Run]] = {
    "job": lambda run: run._replace(id=run.id + 1_000_000),
    "token": lambda run: run._replace(token=run.token + 1),
    "earlier token": lambda run: run._replace(token=run.token - 1),
    "holder": lambda run: run._replace(locked_by="a1b2:10"),
}


@alone
@every_write
def test_the_run_that_holds_the_job_writes(engine: Engine, name: str) -> None:
    runs = running(engine, 3)
    before = rows(engine)
    assert WRITES[name](engine, list(reversed(runs))) in (set(ids(runs)), None)
    assert all(now != then for now, then in zip(rows(engine), before, strict=True))


@alone
@every_write
@pytest.mark.parametrize("holder", ['a"b', "a\\b", "{a,b}", " a ", "null", ""])
def test_the_run_that_holds_the_job_writes_whatever_the_name_of_its_holder(
    engine: Engine, name: str, holder: str
) -> None:
    runs = [claim_one(engine, locked_by=holder) for _ in enqueue(2)]
    before = rows(engine)
    assert WRITES[name](engine, runs) in (set(ids(runs)), None)
    assert all(now != then for now, then in zip(rows(engine), before, strict=True))


@alone
@every_write
@pytest.mark.parametrize("wrong", WRONG)
def test_a_run_with_another_job_token_or_holder_writes_nothing(engine: Engine, name: str, wrong: str) -> None:
    (run,) = running(engine)
    before = rows(engine)
    assert WRITES[name](engine, [WRONG[wrong](run)]) in (set(), None)
    assert rows(engine) == before


@alone
@every_write
@pytest.mark.parametrize("status", ["ready", "done", "failed", "dead", "cancelled"])
def test_a_run_whose_job_is_not_running_writes_nothing(engine: Engine, name: str, status: str) -> None:
    (run,) = running(engine)
    finished_at = None if status == "ready" else Now()
    alter(engine, run.id, status=status, locked_by=None, locked_until=None, finished_at=finished_at)
    before = rows(engine)
    assert WRITES[name](engine, [run]) in (set(), None)
    assert rows(engine) == before


@alone
@every_write
def test_a_run_writes_nothing_into_the_next_run_of_its_job(engine: Engine, name: str) -> None:
    (run,) = running(engine)
    engine.settle([settled(run)], 10)
    again = claim_one(engine)
    assert again == Run(run.id, run.token + 1, WORKER)
    before = rows(engine)
    assert WRITES[name](engine, [run]) in (set(), None)
    assert rows(engine) == before


@alone
@every_write
def test_runs_that_lost_their_job_do_not_keep_the_others_of_a_batch_from_writing(engine: Engine, name: str) -> None:
    runs = running(engine, 4)
    given = [WRONG["token"](runs[0]), runs[1], WRONG["holder"](runs[2]), runs[3]]
    before = rows(engine)
    assert WRITES[name](engine, given) in ({runs[1].id, runs[3].id}, None)
    assert [now != then for now, then in zip(rows(engine), before, strict=True)] == [False, True, False, True]


@alone
@every_write
def test_a_batch_of_none_is_written(engine: Engine, name: str) -> None:
    assert WRITES[name](engine, []) in (set(), None)


@alone
@every_write
def test_a_run_given_twice_is_written_once(engine: Engine, name: str) -> None:
    (run,) = running(engine)
    assert WRITES[name](engine, [run, run]) in ({run.id}, None)
    assert row(engine, run.id)["attempts"] == (1 if name == "settle" else 0)


# On PostgreSQL the fence is tested again on a row that was waited for.


@on_postgresql
@beside_others
@pytest.mark.parametrize("name", ["complete", "settle"])
def test_a_run_that_loses_its_job_while_its_end_waits_for_the_row_writes_nothing(engine: Engine, name: str) -> None:
    (run,) = running(engine)
    with session(engine.alias) as other, session(engine.alias) as third:
        other.begin()
        other.do(lambda: engine.settle([settled(run, counts="loss", cause="lease ran out")], 10))
        late = third.start(lambda: WRITES[name](engine, [run]))
        wait_for_blocked()
        other.commit()
        assert late.result(10) == set()
    after = row(engine, run.id)
    assert (after["status"], after["losses"], after["attempts"]) == ("ready", 1, 0)


@on_postgresql
@beside_others
@pytest.mark.parametrize("name", ["complete", "settle"])
def test_an_end_that_waited_for_a_heartbeat_is_written(engine: Engine, name: str) -> None:
    (run,) = running(engine)
    with session(engine.alias) as other, session(engine.alias) as third:
        other.begin()
        other.do(lambda: engine.extend([run], 60))
        late = third.start(lambda: WRITES[name](engine, [run]))
        wait_for_blocked()
        waited_until = clock(engine)
        other.commit()
        assert late.result(10) == {run.id}
    after = row(engine, run.id)
    # Its times are those of the end of the wait.
    written = {"complete": ("done", after["finished_at"]), "settle": ("ready", after["run_at"])}[name]
    assert after["status"] == written[0]
    assert written[1] > waited_until


# Rows are locked in id order, so that two batches, or a batch and a heartbeat, never wait for each other in a circle.


@on_postgresql
@beside_others
@pytest.mark.parametrize("name", ["complete", "settle", "ended_by"])
def test_a_batch_locks_its_rows_in_id_order_whatever_the_order_it_is_given_in(engine: Engine, name: str) -> None:
    runs = running(engine, 9)
    writes: dict[str, Callable[[Engine, Sequence[Run]], Any]] = {**WRITES, "ended_by": lambda e, r: set(e.ended_by(r))}
    if name == "ended_by":
        engine.complete([Done(run, None) for run in runs])
    middle = runs[4].id
    with session(engine.alias) as other, session(engine.alias) as third:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", middle)
        third.begin()
        late = third.start(lambda: writes[name](engine, list(reversed(runs))))
        wait_for_blocked()
        free = sql(engine, "SELECT id FROM django_jobs_job ORDER BY id FOR UPDATE SKIP LOCKED")
        other.commit()
        assert late.result(10) == set(ids(runs))
        third.commit()
    assert [job_id for (job_id,) in free] == ids(runs[5:])


@on_postgresql
@beside_others
def test_outcomes_and_heartbeats_of_the_same_jobs_in_opposite_order_do_not_deadlock(engine: Engine) -> None:
    first, second = sorted(running(engine, 2))
    with session(engine.alias) as other, session(engine.alias) as third:
        other.begin()
        other.do(lambda: engine.complete([Done(second, None)]))
        # The heartbeat neither waits for the second row nor calls it lost.
        assert engine.extend([second, first], 60) == dict.fromkeys([first.id, second.id], False)
        third.begin()
        assert third.do(lambda: engine.extend([second, first], 60)) == dict.fromkeys([first.id, second.id], False)
        late = other.start(lambda: engine.complete([Done(first, None)]))
        wait_for_blocked()
        third.commit()
        assert late.result(10) == {first.id: "done"}
        other.commit()
    assert [found["status"] for found in rows(engine)] == ["done", "done"]
