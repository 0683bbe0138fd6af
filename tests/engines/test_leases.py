"""Leases: kept, revived, run out; and who holds what."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.models import F

from django_jobs.engines import engine as engine_of
from django_jobs.engines.values import Done, Run
from django_jobs.models import Job
from django_jobs.queue.rescue import reap
from tests.app.jobs import nothing
from tests.engines.common import (
    alone,
    alter,
    beside_others,
    claim,
    claim_one,
    clock,
    enqueue,
    entry,
    ids,
    on_postgresql,
    row,
    rows,
    running,
    settled,
)
from tests.threads import session, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


def let_run_out(engine: Engine, run: Run, seconds: float = 60.0) -> None:
    """Move a lease into the past by the database's clock."""
    alter(engine, run.id, locked_until=clock(engine) - timedelta(seconds=seconds))


# Extending.


@alone
def test_a_heartbeat_sets_the_lease_from_now_on(engine: Engine) -> None:
    first, second, other = running(engine, 3)
    before, start = rows(engine), clock(engine)
    assert engine.extend([second, first], 120.0) == dict.fromkeys([first.id, second.id], False)
    after, end = rows(engine), clock(engine)
    for run in (first, second):
        assert start <= row(engine, run.id)["locked_until"] - timedelta(seconds=120) <= end
    for then, now in zip(before, after, strict=True):
        assert now == then | {"locked_until": now["locked_until"]}
    assert after[2] == before[2]
    assert after[2]["id"] == other.id


@alone
def test_a_heartbeat_may_shorten_a_lease(engine: Engine) -> None:
    (run,) = running(engine, lease=3600)
    engine.extend([run], 30.0)
    assert row(engine, run.id)["locked_until"] < clock(engine) + timedelta(seconds=31)


@alone
def test_a_heartbeat_revives_a_lease_that_ran_out_while_the_job_is_still_the_runs(engine: Engine) -> None:
    (run,) = running(engine)
    let_run_out(engine, run)
    assert engine.extend([run], 30.0) == dict.fromkeys([run.id], False)
    assert row(engine, run.id)["locked_until"] > clock(engine)


@alone
def test_a_heartbeat_does_not_revive_what_was_taken_back_or_claimed_again(engine: Engine) -> None:
    first, second = running(engine, 2)
    for run in (first, second):
        engine.settle([settled(run, counts="loss", cause="lease ran out")], 10)
    claim_one(engine)
    before = rows(engine)
    assert engine.extend([first, second], 30.0) == {}
    assert rows(engine) == before


@on_postgresql
@beside_others
def test_a_heartbeat_steps_over_rows_in_other_hands_and_does_not_call_them_lost(engine: Engine) -> None:
    first, second, third = running(engine, 3)
    held = row(engine, second.id)
    start = clock(engine)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", second.id)
        with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1ms'")
            assert engine.extend([third, second, first], 3600) == dict.fromkeys([first.id, second.id, third.id], False)
        other.rollback()
    assert row(engine, second.id) == held
    for run in (first, third):
        assert row(engine, run.id)["locked_until"] > start + timedelta(minutes=50)


@on_postgresql
@beside_others
def test_progress_steps_over_rows_in_other_hands(engine: Engine) -> None:
    first, second = running(engine, 2)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", first.id)
        engine.store_progress([(second, '{"done":2}'), (first, '{"done":1}')])
        other.rollback()
    assert [found["progress"] for found in rows(engine)] == [None, {"done": 2}]


@alone
def test_the_latest_progress_is_kept_with_the_job(engine: Engine) -> None:
    first, second = running(engine, 2)
    before = rows(engine)
    engine.store_progress([(second, '{"done":1}'), (first, '{"done":1,"note":"ß"}')])
    engine.store_progress([(second, '{"done":2}')])
    progress = [{"done": 1, "note": "ß"}, {"done": 2}]
    assert rows(engine) == [then | {"progress": found} for then, found in zip(before, progress, strict=True)]


# Running out.


@on_postgresql
@alone
def test_only_leases_that_ran_out_are_expired_in_id_order_up_to_the_limit(engine: Engine) -> None:
    runs = running(engine, 5, lease=30)
    assert not engine.expired_exist()
    for run in (runs[3], runs[0], runs[2]):
        let_run_out(engine, run)
    enqueue(1)
    assert engine.expired_exist()
    Job.objects.using(engine.alias).running().update(last_started_at=F("last_started_at") - timedelta(seconds=100))
    found = engine.expired(2)
    assert [(item.run, item.type) for item in found] == [(run, nothing.name) for run in (runs[0], runs[2])]
    assert [item.seconds for item in found] == pytest.approx([100, 100], abs=5)
    assert [item.run for item in engine.expired(10)] == [runs[0], runs[2], runs[3]]


@on_postgresql
@beside_others
def test_expired_jobs_are_locked_for_their_reaper_and_others_step_over_them(engine: Engine) -> None:
    first, second, third = running(engine, 3)
    for run in (first, second, third):
        let_run_out(engine, run)
    with session(engine.alias) as other:
        other.begin()
        assert [item.run for item in other.do(lambda: engine.expired(2))] == [first, second]
        with transaction.atomic(using=engine.alias):
            assert [item.run for item in engine.expired(10)] == [third]
        # Their own heartbeats come too late only when the reaper has committed.
        assert engine.extend([first, second], 30) == dict.fromkeys([first.id, second.id], False)
        other.do(lambda: engine.settle([settled(first, counts="loss", cause="lease ran out")], 10))
        other.commit()
    assert engine.extend([first, second], 30) == dict.fromkeys([second.id], False)


# Who holds what, and what has ended.


@alone
def test_what_an_incarnation_holds_is_found_by_its_name(engine: Engine) -> None:
    enqueue(4)
    first, second = claim_one(engine, locked_by="a1:1"), claim_one(engine, locked_by="a1:22")
    claim_one(engine, locked_by="a11:1")
    ended = claim_one(engine, locked_by="a1:3")
    engine.complete([Done(ended, None)])
    assert sorted(engine.held_by("a1")) == [first, second]
    assert engine.held_by("a%") == engine.held_by("a_") == engine.held_by("") == []


@alone
def test_a_run_that_ended_under_its_own_token_is_known_as_ended(engine: Engine) -> None:
    done, snoozed, again, _still, gone = runs = running(engine, 5)
    engine.complete([Done(done, None)])
    engine.settle([settled(run, entry=entry(run)) for run in (snoozed, again)], 10)
    alter(engine, snoozed.id, run_at=clock(engine) + timedelta(hours=1))
    assert claim_one(engine).id == again.id
    Job.objects.using(engine.alias).filter(pk=gone.id).delete()
    assert engine.ended_by(runs) == engine.ended_by(runs, waiting=False) == {done.id: "done", snoozed.id: "ready"}


@alone
@pytest.mark.parametrize("status", ["ready", "failed", "cancelled"])
def test_a_run_whose_job_somebody_else_changed_has_not_ended_by_itself(engine: Engine, status: str) -> None:
    run, other = running(engine, 2)
    ended = None if status == "ready" else clock(engine)
    line = {"run": 7, "cause": "raised"}
    alter(engine, run.id, status=status, finished_at=ended, locked_by=None, locked_until=None, history=[line])
    engine.settle([settled(other)], 10)  # given back as if it had not been claimed
    assert engine.ended_by([run, other]) == engine.ended_by([run, other], waiting=False) == {}


@alone
def test_a_run_whose_job_was_taken_back_when_its_lease_ran_out_has_not_ended_by_itself(engine: Engine) -> None:
    reaped, done = running(engine, 2)
    let_run_out(engine, reaped)
    alter(engine, done.id, history=[{"run": 0, "cause": "lease ran out"}])
    if not engine.reaps_by_lease:
        engine.complete([Done(done, None)])
    assert reap(engine, max_uncounted=10) == 1
    engine.complete([Done(done, None)])
    assert row(engine, reaped.id)["status"] == "ready"
    assert engine.ended_by([reaped, done]) == {done.id: "done"}


@alone
def test_of_no_runs_none_has_ended(engine: Engine) -> None:
    assert engine.ended_by([]) == {}


@on_postgresql
@beside_others
def test_an_end_that_is_being_committed_is_waited_for_when_it_is_asked_for(engine: Engine) -> None:
    (run,) = running(engine)
    with session(engine.alias) as other, session(engine.alias) as third:
        other.begin()
        other.do(lambda: engine.complete([Done(run, None)]))
        late = third.start(lambda: engine.ended_by([run]))
        wait_for_blocked()
        other.commit()
        assert late.result(10) == {run.id: "done"}


@beside_others
def test_a_batch_that_is_sent_again_after_a_lost_answer_is_known_as_written(engine: Engine) -> None:
    done, retried = running(engine, 2)
    line = entry(retried)
    for expected in ({done.id: "done"}, {}):
        assert engine.complete([Done(done, None)]) == expected
    for statuses in ({retried.id: "ready"}, {}):
        assert engine.settle([settled(retried, counts="attempt", delay=5.0, entry=line)], 10) == statuses
    assert engine.ended_by([done, retried]) == {done.id: "done", retried.id: "ready"}
    assert row(engine, retried.id)["attempts"] == 1


# Whether the database answers.


@alone
def test_a_database_that_answers_is_there(engine: Engine) -> None:
    assert engine.probe(timeout=0.2)
    assert engine.describe().startswith({"postgresql": "PostgreSQL 1", "sqlite": "SQLite 3."}[engine.name])


@alone
def test_a_database_that_does_not_answer_is_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    elsewhere = {"postgresql": {"PORT": "1"}, "sqlite": {"NAME": str(tmp_path / "no" / "jobs.sqlite3")}}[engine.name]
    settings = {**connections[engine.alias].settings_dict, **elsewhere}
    monkeypatch.setitem(connections.settings, "elsewhere", settings)
    assert not engine_of("elsewhere").probe(timeout=2)


@alone
def test_without_file_descriptors_the_database_is_away(engine: Engine) -> None:
    """A socket takes one and waiting for it another: with any number left a probe answers, and raises nothing."""
    answers = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/dev/fd")) + 10, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(6):
            answers.append(engine.probe(timeout=2))
            os.close(taken.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
    assert (answers[0], answers[-1]) == (False, True)


@alone
def test_claims_and_enqueues_are_not_seen_by_a_probe(engine: Engine) -> None:
    enqueue(1)
    assert engine.probe(timeout=0.2)
    assert ids(claim(engine)) != []
