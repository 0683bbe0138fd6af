"""Cancelling and requeueing, by what they write; tests/processes/test_acts.py has them beside workers."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest

from django_jobs import (
    IdempotencyConflict,
    InvalidJobType,
    JobDoesNotExist,
    StateConflict,
)
from django_jobs.engines.values import Done, Run, released
from django_jobs.models import Job
from django_jobs.queue import operate, rescue
from tests.acts import FINAL, acts, in_state, line
from tests.app.jobs import nothing
from tests.engines.common import (
    alone,
    alter,
    claim_one,
    clock,
    order,
    row,
    settled,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

# Cancelling what waits.


@alone
@pytest.mark.parametrize("status", ["ready", "parked", "scheduled"])
def test_what_waits_is_cancelled_at_once_and_never_claimed(engine: Engine, status: str) -> None:
    job = in_state(engine, status)
    before, start = row(engine, job.pk), clock(engine)
    assert job.cancel(why="wrong order", by="ada") is job
    after = row(engine, job.pk)
    assert start - timedelta(milliseconds=1) <= after["finished_at"] <= clock(engine)
    (entry,) = after["history"]
    assert after == before | {
        "status": "cancelled",
        "parked": None,
        "finished_at": after["finished_at"],
        "cancel_reason": "by ada: wrong order",
        "history": [entry],
    }
    assert entry == {
        "run": 0, "cause": "called off", "error": "by ada: wrong order", "worker": "", "seconds": 0.0, "at": entry["at"],
    }  # fmt: skip
    assert entry["at"].endswith("Z")
    alter(engine, job.pk, run_at=clock(engine) - timedelta(hours=1))
    assert engine.claim(order(9)).jobs == engine.claim_parked(order(9)).jobs == []


@alone
@pytest.mark.parametrize(("unique", "freed"), [("window", False), ("unfinished", True), ("waiting", True)])
def test_cancelling_frees_a_key_that_holds_for_as_long_as_the_job_waits(
    engine: Engine, unique: Literal["window", "unfinished", "waiting"], freed: bool
) -> None:
    job = nothing.using(idempotency_key="k", unique=unique).enqueue(1)
    job.cancel()
    again = nothing.using(idempotency_key="k", unique=unique)
    if freed:
        assert again.enqueue(2).pk != job.pk
    else:
        with pytest.raises(IdempotencyConflict):
            again.enqueue(2)


@alone
@pytest.mark.parametrize("status", FINAL)
def test_what_ended_is_not_cancelled(engine: Engine, status: str) -> None:
    job = in_state(engine, status)
    before = row(engine, job.pk)
    with pytest.raises(StateConflict, match=rf"Job {job.pk} is {status} already; only what waits or runs"):
        job.cancel()
    assert row(engine, job.pk) == before


# Cancelling what runs.


@alone
def test_cancelling_what_runs_leaves_it_its_runs_and_says_so_with_the_next_heartbeat(engine: Engine) -> None:
    job = in_state(engine, "running")
    before = row(engine, job.pk)
    run = Run(job.pk, 1, str(job.locked_by))
    assert engine.extend([run], 30) == {job.pk: False}
    job.cancel(by="ada")
    assert acts(job) == [(1, "asked to stop", "by ada")]
    assert row(engine, job.pk) == before | {
        "cancel_reason": "by ada",
        "history": job.history,
        "locked_until": row(engine, job.pk)["locked_until"],
    }
    assert engine.extend([run], 30) == {job.pk: True}
    job.cancel(by="bob", why="a second time")
    assert job.cancel_reason == "by ada"
    assert len(job.history) == 1


@alone
@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ("ready", "attempt"),
        ("ready", "end"),
        ("ready", "nothing"),
        ("ready", "loss"),
        ("failed", "end"),
        ("dead", "attempt"),
        ("cancelled", "end"),
    ],
)
def test_however_its_run_ends_a_job_that_was_asked_to_stop_is_cancelled(
    engine: Engine, status: str, counts: str
) -> None:
    job = in_state(engine, "running", idempotency_key="k", unique="unfinished")
    run = Run(job.pk, 1, str(job.locked_by))
    job.cancel(why="enough")
    ended = settled(run, status=status, counts=counts, delay=5.0, error="no", entry=line(run))
    assert engine.settle([ended], 10) == {job.pk: "cancelled"}
    job.refresh()
    assert (job.status, job.locked_by, job.locked_until, job.idempotency_key) == ("cancelled", None, None, None)
    assert job.finished_at is not None
    assert acts(job) == [(1, "asked to stop", "enough"), (1, "raised", "no")]
    assert engine.claim(order(9)).jobs == []


@alone
@pytest.mark.parametrize("result", [None, '"small"', json.dumps("x" * 30_000)])
def test_a_result_that_it_returned_nevertheless_is_kept(engine: Engine, result: str | None) -> None:
    job = in_state(engine, "running")
    job.cancel()
    assert engine.complete([Done(Run(job.pk, 1, str(job.locked_by)), result)]) == {job.pk: "cancelled"}
    job.refresh()
    assert (job.status, job.result) == ("cancelled", None if result is None else json.loads(result))


@alone
def test_a_claim_that_goes_back_unstarted_and_a_lease_that_ran_out_end_it_as_well(engine: Engine) -> None:
    given_back, lost = in_state(engine, "running"), in_state(engine, "running")
    for job in (given_back, lost):
        job.cancel()
    engine.settle([released(Run(given_back.pk, 1, str(given_back.locked_by)))], 10)
    alter(engine, lost.pk, locked_until=clock(engine) - timedelta(seconds=1))
    rescue.reap(engine, max_uncounted=10)
    assert [given_back.refresh().status, lost.refresh().status] == ["cancelled", "cancelled"]


# Requeueing.


@alone
@pytest.mark.parametrize("status", FINAL)
def test_a_job_that_ended_runs_again_at_once_with_all_its_attempts_and_its_history(engine: Engine, status: str) -> None:
    job = in_state(engine, status, delay=0, expires=3600)
    alter(engine, job.pk, run_at=clock(engine) - timedelta(days=2), attempts=3, losses=4, progress={"done": 1})
    before, start = row(engine, job.pk), clock(engine)
    job.requeue(why="the disk is there", by="ada")
    after = row(engine, job.pk)
    assert start - timedelta(milliseconds=1) <= after["run_at"] <= clock(engine)
    assert after == before | {
        "status": "ready",
        "run_at": after["run_at"],
        "expires_at": None,
        "finished_at": None,
        "attempts": 0,
        "losses": 1,
        "progress": None,
        "result": None,
        "history": [*before["history"], after["history"][-1]],
    }
    assert acts(job)[-1] == (1, "requeued", "by ada: the disk is there")
    again = claim_one(engine)
    assert (again.id, again.token) == (job.pk, 2)
    assert engine.complete([Done(again, None)]) == {job.pk: "done"}


@alone
@pytest.mark.parametrize(("status", "says"), [("ready", "waits"), ("running", "runs"), ("scheduled", "waits")])
def test_what_has_not_ended_is_not_requeued(engine: Engine, status: str, says: str) -> None:
    job = in_state(engine, status)
    before = row(engine, job.pk)
    with pytest.raises(StateConflict, match=rf"Job {job.pk} {says}; it can be requeued when it has ended"):
        job.requeue()
    assert row(engine, job.pk) == before


@alone
def test_a_job_that_was_cancelled_while_it_ran_is_not_cancelled_again_by_its_next_run(engine: Engine) -> None:
    job = in_state(engine, "running")
    job.cancel()
    engine.complete([Done(Run(job.pk, 1, str(job.locked_by)), None)])
    job.refresh().requeue()
    run = claim_one(engine)
    assert engine.extend([run], 30) == {job.pk: False}
    assert engine.complete([Done(run, None)]) == {job.pk: "done"}


@alone
@pytest.mark.parametrize("unique", ["unfinished", "waiting"])
def test_a_requeue_takes_its_freed_key_again_unless_another_job_has_it(
    engine: Engine, unique: Literal["unfinished", "waiting"]
) -> None:
    once = nothing.using(idempotency_key="k", unique=unique)
    first = once.enqueue(1)
    run = claim_one(engine)
    engine.complete([Done(run, None)])
    assert row(engine, first.pk)["idempotency_key"] is None
    second = once.enqueue(2)
    before = row(engine, first.pk)
    with pytest.raises(StateConflict) as caught:
        first.requeue()
    assert str(caught.value) == (
        f"Job {first.pk} cannot be requeued: its idempotency key 'k' is held by job {second.pk}, which waits."
    )
    assert row(engine, first.pk) == before
    second.cancel()
    first.requeue()
    assert first.idempotency_key == "k"
    with pytest.raises(IdempotencyConflict):
        once.enqueue(3)


@alone
@pytest.mark.parametrize("between", ["requeue", "cancel and requeue", "expire and requeue"])
def test_a_requeued_job_stays_suspected_of_having_killed_its_process(engine: Engine, between: str) -> None:
    job = nothing.enqueue()

    def die() -> str:
        claimed = engine.claim_suspect(order()).jobs
        run = claimed[0].run if claimed else claim_one(engine)
        ran_alone.append(bool(claimed))
        rescue.lose(
            engine, [(run, 0.1)], cause="died", error="by signal 9", worker="h:1", witnessed=True, max_uncounted=10
        )
        return str(job.refresh().status)

    ran_alone: list[bool] = []
    assert die() == "ready"
    if between == "requeue":
        assert die() == "dead"
    elif between == "cancel and requeue":
        job.cancel()
    else:
        alter(engine, job.pk, expires_at=clock(engine) - timedelta(seconds=1))
        assert engine.cancel_expired(10) == 1
    job.refresh().requeue()
    assert die() == "dead"
    assert (ran_alone[0], ran_alone[-1]) == (False, True)


@alone
def test_the_first_line_of_a_history_and_the_last_nine_are_kept(engine: Engine) -> None:
    job = nothing.enqueue()
    for number in range(8):
        job.cancel(why=f"c{number}")
        job.requeue(why=f"r{number}")
    assert [line["error"] for line in job.history] == ["c0", *[f"{x}{n}" for n in range(3, 8) for x in "cr"][1:]]
    assert len(job.history) == 10


@alone
def test_a_history_that_is_no_list_is_not_added_to(engine: Engine) -> None:
    job = nothing.enqueue()
    alter(engine, job.pk, history={})
    with pytest.raises(StateConflict, match=r"history of job \d+ is no list"):
        job.cancel()


@alone
def test_times_in_the_history_are_utc_where_the_project_has_no_time_zones(engine: Engine, settings: Any) -> None:
    job = nothing.enqueue()
    start = clock(engine).replace(tzinfo=None)
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    try:
        operate.cancel(job.pk)
    finally:
        settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    at = row(engine, job.pk)["history"][0]["at"]
    assert at.endswith("Z")
    assert abs(datetime.fromisoformat(at).replace(tzinfo=None) - start) < timedelta(minutes=5)


@alone
@pytest.mark.parametrize("act", ["cancel", "requeue"])
def test_words_that_are_no_text_are_refused_and_others_made_storable(engine: Engine, act: str) -> None:
    job = in_state(engine, "ready" if act == "cancel" else "done")
    with pytest.raises(InvalidJobType, match="why is 5; give text"):
        getattr(job, act)(why=5)
    getattr(job, act)(why="a\x00b\ud800" + "x" * 5000)
    assert job.history[-1]["error"].startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}x")
    assert len(job.history[-1]["error"]) < 1200


@alone
@pytest.mark.parametrize("act", ["cancel", "requeue", "refresh"])
def test_a_job_that_was_deleted_is_said_to_be_gone(engine: Engine, act: str) -> None:
    job = nothing.enqueue()
    pk = job.pk
    Job.objects.using(engine.alias).all().delete()
    job.pk = pk
    with pytest.raises(JobDoesNotExist, match=rf"There is no job {pk}"):
        getattr(job, act)()
