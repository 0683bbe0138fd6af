"""Acts upon all that a filter finds: what each does to which jobs, and that none does it twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F
from django.db.models.functions import Now

from django_jobs import bulk
from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob, StateConflict
from django_jobs.models import BulkAct, Job, Pause, Worker
from django_jobs.models.clock import Clock
from django_jobs.queue import bulk_acts, bulk_step, operate
from django_jobs.queue.bulk_acts import TYPE
from django_jobs.queue.sought import Sought
from tests.app.jobs import nothing
from tests.bulk import LINE, begin, carry_out, make, statuses, take_step

pytestmark = pytest.mark.django_db(databases="__all__")


def numbers(act: BulkAct) -> tuple[str, int, int]:
    return act.state, act.done, act.refused


@pytest.mark.parametrize("history", [[LINE], [{**LINE, "run": run} for run in range(10)]])
def test_requeued_by_many_a_row_is_as_one_that_was_requeued_alone(engine: Engine, history: list[Any]) -> None:
    values: dict[str, Any] = {
        "losses": 3,
        "suspect": True,
        "cancel_reason": "no",
        "progress": {"done": 1},
        "expires_at": Now(),
        "result": 1,
        "history": history,
    }
    (alone,) = make(engine.alias, 1, idempotency_key="a", **values)
    operate.requeue(alone, why="it is back", by="ada")
    (together,) = make(engine.alias, 1, idempotency_key="b", **values)
    assert numbers(carry_out(begin())) == ("done", 1, 0)
    left, right = Job.objects.using(engine.alias).filter(pk__in=[alone, together]).order_by("pk").values()
    apart = ("id", "idempotency_key", "run_at", "created_at")
    for row in (left, right):
        assert row["history"][-1].pop("at").endswith("Z")
        assert [row.pop(name) for name in apart]
    assert left == right
    assert left["history"][-1]["error"] == "by ada: it is back"


def test_cancelled_by_many_a_row_is_as_one_that_was_cancelled_alone(engine: Engine) -> None:
    for holds in ("window", "unfinished"):
        (alone,) = make(engine.alias, 1, "ready", idempotency_key=f"a{holds}", key_holds=holds, parked="type")
        operate.cancel(alone, why="it is back", by="ada")
        (together,) = make(engine.alias, 1, "ready", idempotency_key=f"b{holds}", key_holds=holds, parked="type")
        assert numbers(carry_out(begin("cancel", Sought(state="parked")))) == ("done", 1, 0)
        left, right = Job.objects.using(engine.alias).filter(pk__in=[alone, together]).order_by("pk").values()
        for row in (left, right):
            assert row["history"][-1].pop("at").endswith("Z")
            assert (row.pop("idempotency_key") is None) == (holds == "unfinished")
            assert [row.pop(name) for name in ("id", "run_at", "created_at", "finished_at")]
        assert left == right


def test_what_shares_a_key_with_a_waiting_job_is_reported_and_the_others_are_requeued(engine: Engine) -> None:
    keys = [f"mail:{number}" for number in range(20)]
    ids = make(engine.alias, 280)
    held = [make(engine.alias, 1, meta={"key": key}, key_holds="unfinished")[0] for key in keys]
    for key in keys:
        nothing.using(idempotency_key=key, unique="unfinished").enqueue()
    act = carry_out(begin())
    assert numbers(act) == ("done", 280, 20)
    assert statuses(engine.alias, ids) == ["ready"] * 280
    assert statuses(engine.alias, held) == ["dead"] * 20
    assert [job_id for job_id, _why in act.refusals] == held
    assert all(
        f"its idempotency key {key!r} is held by" in why for key, (_, why) in zip(keys, act.refusals, strict=True)
    )


def test_a_freed_key_that_nobody_has_is_taken_back(engine: Engine) -> None:
    (job_id,) = make(engine.alias, 1, meta={"key": "mail"}, key_holds="unfinished")
    assert numbers(carry_out(begin())) == ("done", 1, 0)
    assert Job.objects.using(engine.alias).get(pk=job_id).idempotency_key == "mail"


def test_a_job_that_dies_again_is_not_requeued_a_second_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 2)
    monkeypatch.setattr(bulk_step, "LONGEST", 0.0)
    monkeypatch.setattr(bulk_step, "LONGEST_ON_SQLITE", 0.0)
    ids = make(engine.alias, 4)
    act = begin()
    take_step(act)
    assert statuses(engine.alias, ids) == ["ready", "ready", "dead", "dead"]
    jobs = Job.objects.using(engine.alias)
    jobs.filter(pk=ids[0]).update(status="dead", finished_at=Clock())
    assert numbers(carry_out(act)) == ("done", 4, 0)
    assert statuses(engine.alias, ids) == ["dead", "ready", "ready", "ready"]
    assert jobs.get(pk=ids[0]).token == 1


def test_what_ends_or_is_made_after_the_confirmation_is_not_meant(engine: Engine) -> None:
    (before,) = make(engine.alias, 1)
    (under_way,) = make(engine.alias, 1, "running")
    act = begin()
    (after,) = make(engine.alias, 1, finished_at=Now() - timedelta(hours=1))
    jobs = Job.objects.using(engine.alias)
    jobs.filter(pk=under_way).update(
        status="dead", locked_by=None, locked_until=None, finished_at=Now() + timedelta(seconds=5)
    )
    assert numbers(carry_out(act)) == ("done", 1, 0)
    assert statuses(engine.alias, [before, under_way, after]) == ["ready", "dead", "dead"]


def test_done_jobs_run_again_only_when_the_filter_says_done(engine: Engine) -> None:
    ids = [make(engine.alias, 1, status)[0] for status in ("done", "dead", "failed", "cancelled")]
    carry_out(begin("requeue", Sought(type=nothing.name)))
    assert statuses(engine.alias, ids) == ["done", "ready", "ready", "ready"]
    carry_out(begin("requeue", Sought(state="done")))
    assert statuses(engine.alias, ids[:1]) == ["ready"]


def test_a_job_that_runs_is_asked_to_stop_and_no_act_means_its_own_job(engine: Engine) -> None:
    (runs,) = make(engine.alias, 1, "running")
    (waits,) = make(engine.alias, 1, "ready")
    other = begin("requeue", Sought(state="cancelled"))
    act = carry_out(begin("cancel", Sought()))
    assert (numbers(act), act.asked) == (("done", 2, 0), 1)
    assert statuses(engine.alias, [runs, waits, other.job_id or 0]) == ["running", "cancelled", "ready"]
    assert Job.objects.using(engine.alias).get(pk=runs).cancel_reason == "by ada: it is back"


def test_what_has_a_key_that_holds_is_deleted_only_when_that_is_said(engine: Engine) -> None:
    (keyed,) = make(engine.alias, 1, idempotency_key="a")
    (old,) = make(engine.alias, 1, idempotency_key="b", finished_at=Now() - timedelta(days=2))
    (plain,) = make(engine.alias, 1)
    (runs,) = make(engine.alias, 1, "running")
    (waits,) = make(engine.alias, 1, "ready")
    act = carry_out(begin("delete", Sought()))
    ids = [keyed, old, plain, runs, waits]
    assert statuses(engine.alias, ids) == ["dead", "gone", "gone", "running", "ready"]
    assert numbers(act) == ("done", 2, 1)
    assert act.refusals[0][0] == keyed
    carry_out(begin("delete", Sought(), with_keys=True))
    carry_out(begin("delete", Sought(state="due")))
    assert statuses(engine.alias, ids) == ["gone", "gone", "gone", "running", "gone"]


def test_waiting_jobs_are_moved_to_another_queue_with_their_due_times(engine: Engine) -> None:
    (waits,) = make(engine.alias, 1, "ready", queue="mail")
    (runs,) = make(engine.alias, 1, "running", queue="mail")
    before = Job.objects.using(engine.alias).get(pk=waits).run_at
    act = carry_out(begin("move", Sought(queue="mail"), queue="slow"))
    found = dict(Job.objects.using(engine.alias).values_list("pk", "queue"))
    assert (found[waits], found[runs], numbers(act)) == ("slow", "mail", ("done", 1, 0))
    job = Job.objects.using(engine.alias).get(pk=waits)
    assert job.run_at == before
    assert (job.history[-1]["cause"], job.history[-1]["error"]) == ("edited", "by ada: it is back (queue)")


def test_a_row_that_the_database_refuses_is_reported_and_stops_no_other(engine: Engine) -> None:
    ids = make(engine.alias, 3)
    trigger(engine, ids[1])
    act = carry_out(begin())
    assert numbers(act) == ("done", 2, 1)
    assert [job_id for job_id, _why in act.refusals] == [ids[1]]
    assert engine.name == "sqlite" or act.refusals[0][1] == f"Job {ids[1]}: not this one"
    assert statuses(engine.alias, ids) == ["ready", "dead", "ready"]


def trigger(engine: Engine, job_id: int) -> None:
    """Have the database refuse what changes one job."""
    with engine.connection.cursor() as cursor:
        if engine.name == "sqlite":
            cursor.execute(
                f"CREATE TRIGGER picky BEFORE UPDATE ON django_jobs_job WHEN old.id = {job_id} "
                "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )
            return
        cursor.execute(
            "CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not this one'; END$$"
        )
        cursor.execute(
            f"CREATE TRIGGER picky BEFORE UPDATE ON django_jobs_job FOR EACH ROW WHEN (old.id = {job_id}) "
            "EXECUTE FUNCTION picky()"
        )


def test_a_pace_lets_so_many_jobs_through_in_a_while_and_says_when_it_goes_on(engine: Engine) -> None:
    ids = make(engine.alias, 40)
    act = begin(per_minute=120)
    first = take_step(act)
    assert first.pause is not None
    assert 4.0 < first.pause <= 5.0
    assert statuses(engine.alias, ids).count("ready") == 10
    assert (take_step(act).pause or 0) > 4.0
    assert statuses(engine.alias, ids).count("ready") == 10
    BulkAct.objects.using(engine.alias).update(paced_at=F("paced_at") - timedelta(seconds=5))
    take_step(act)
    assert statuses(engine.alias, ids).count("ready") == 20
    # What was missed is not made up for.
    BulkAct.objects.using(engine.alias).update(paced_at=F("paced_at") - timedelta(hours=1))
    assert (take_step(act).pause or 0) > 4.0
    assert (take_step(act).pause or 0) > 4.0
    assert statuses(engine.alias, ids).count("ready") == 30


def test_cancelled_half_way_it_does_no_more_and_resumed_it_does_the_rest_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 5)
    monkeypatch.setattr(bulk_step, "LONGEST", 0.0)
    monkeypatch.setattr(bulk_step, "LONGEST_ON_SQLITE", 0.0)
    ids = make(engine.alias, 10)
    act = begin()
    take_step(act)
    first_job = act.job_id
    bulk.cancel(act.pk, by="ada")
    assert take_step(act).pause is None
    assert (statuses(engine.alias, ids).count("ready"), act.state) == (5, "cancelled")
    assert statuses(engine.alias, [first_job or 0]) == ["cancelled"]
    with pytest.raises(StateConflict):
        bulk.cancel(act.pk)
    bulk.resume(act.pk, by="ada")
    # Its first job has lost it.
    assert bulk_step.step(engine.alias, act.pk, first_job or 0, 9).pause is None
    assert statuses(engine.alias, ids).count("ready") == 5
    assert numbers(carry_out(act)) == ("done", 10, 0)
    assert {len(job.history) for job in Job.objects.using(engine.alias).filter(pk__in=ids)} == {2}
    with pytest.raises(StateConflict):
        bulk.resume(act.pk)


def test_a_run_that_another_has_followed_takes_no_step(engine: Engine) -> None:
    make(engine.alias, 300)
    act = begin(per_minute=12)
    take_step(act, run=2)
    BulkAct.objects.using(engine.alias).update(paced_at=F("paced_at") - timedelta(seconds=5))
    assert take_step(act, run=1).pause is None
    assert act.done == 1
    assert take_step(act, run=2).pause


def test_an_act_whose_job_was_cancelled_or_deleted_has_stopped_and_can_be_resumed(engine: Engine) -> None:
    make(engine.alias, 3)
    act = begin()
    assert not bulk.has_stopped(act)
    with pytest.raises(StateConflict):
        bulk.resume(act.pk)
    operate.cancel(act.job_id or 0)
    assert bulk.has_stopped(act)
    act = bulk.resume(act.pk)
    Job.objects.using(engine.alias).filter(pk=act.job_id).delete()
    assert bulk.has_stopped(act)
    assert numbers(carry_out(bulk.resume(act.pk))) == ("done", 3, 0)


def test_one_form_makes_one_act_and_a_second_one_alike_finds_the_first(engine: Engine) -> None:
    token = uuid4()
    wanted = bulk.Wanted(act="requeue", sought=Sought(state="dead"))
    first, made = bulk.begin(wanted, token, counted=0, is_capped=False)
    assert made
    for again in (token, uuid4()):
        assert bulk.begin(wanted, again, counted=0, is_capped=False) == (first, False)
    _other, made = bulk.begin(
        bulk.Wanted(act="requeue", sought=Sought(state="failed")), uuid4(), counted=0, is_capped=False
    )
    assert made
    assert Job.objects.using(engine.alias).filter(type=TYPE).count() == 2
    # When it is over, the form is not to begin it anew, and another one is.
    carry_out(first)
    assert bulk.begin(wanted, token, counted=0, is_capped=False)[1] is False
    assert bulk.begin(wanted, uuid4(), counted=0, is_capped=False)[1] is True


def test_its_job_goes_where_a_live_worker_takes_it(engine: Engine) -> None:
    def queue_of(**values: Any) -> str:
        Worker.objects.using(engine.alias).all().delete()
        worker = {"host": "here", "pid": 1, "supervisor_pid": 1, "threads": 1, "types": [TYPE]}
        if values:
            Worker.objects.using(engine.alias).create(id="w", **{**worker, **values})
        act = begin(sought=Sought(tag=str(uuid4())))
        return str(Job.objects.using(engine.alias).get(pk=act.job_id).queue)

    assert queue_of() == "default"
    assert queue_of(queues=None) == "default"
    assert queue_of(queues=["mail", "slow"]) == "mail"
    assert queue_of(queues=["mail"], types=[]) == "default"
    Pause.objects.using(engine.alias).create(kind="queue", name="default")
    Pause.objects.using(engine.alias).create(kind="queue", name="mail")
    assert queue_of(queues=["mail", "slow"]) == "slow"
    assert queue_of(queues=None) == bulk.OWN_QUEUE


@pytest.mark.parametrize(
    "values",
    [
        {"act": "explode"},
        {"act": "cancel", "sought": Sought(state="dead")},
        {"act": "requeue", "sought": Sought(state="due")},
        {"act": "delete", "sought": Sought(state="running")},
        {"act": "move", "queue": ""},
        {"act": "move", "queue": "a,b"},
        {"act": "requeue", "per_minute": 0},
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(engine: Engine, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob):
        begin(**{"sought": Sought(), **values})
    assert not BulkAct.objects.using(engine.alias).exists()


def test_old_acts_are_forgotten_unless_a_job_carries_them_out(engine: Engine) -> None:
    done, alive, young = begin(), begin(sought=Sought(state="dead")), begin(sought=Sought(state="failed"))
    carry_out(done)
    Job.objects.using(engine.alias).filter(pk=done.job_id).update(status="done", finished_at=Now())
    old = BulkAct.objects.using(engine.alias).exclude(pk=young.pk)
    old.update(created_at=Now() - timedelta(days=91))
    old.filter(pk=done.pk).update(finished_at=Now() - timedelta(days=91))
    assert bulk_acts.forget(engine) == 1
    assert set(BulkAct.objects.using(engine.alias)) == {alive, young}
