"""`jobs requeue`, `cancel` and `purge`: by id and by filter."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.engines.values import Done
from django_jobs.models import Job
from django_jobs.queue import bulk, choose
from tests.acts import Ran, age, dead, statuses
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, alter, beside_others, claim_one, enqueue, ids, on_postgresql
from tests.threads import session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")


# Requeue and cancel.


@alone
def test_requeue_takes_ids_of_whatever_ended_and_says_who_and_why(engine: Engine) -> None:
    (done,) = enqueue(1)
    engine.complete([Done(claim_one(engine), None)])
    (failed,) = dead(engine, 1)
    ran = Ran("requeue", str(failed.pk), str(done.pk), "--why", "the disk is there")
    assert (ran.code, ran.out, ran.err) == (0, "2 requeued.\n", "")
    assert set(statuses(engine).values()) == {"ready"}
    assert done.refresh().history[-1]["error"] == "by ada: the disk is there"


@alone
def test_requeue_by_filter_means_the_dead_letters_unless_it_says_otherwise(engine: Engine) -> None:
    (done,) = enqueue(1, queue="mail")
    engine.complete([Done(claim_one(engine), None)])
    made, (other,) = dead(engine, 3, queue="mail"), dead(engine, 1, queue="other")
    assert Ran("requeue", "--queue", "mail", "--limit", "2", "--json").data == {"requeued": 2, "refused": []}
    assert statuses(engine) == dict(
        zip(ids([done, *made, other]), ["done", "ready", "ready", "dead", "dead"], strict=True)
    )
    assert Ran("requeue", "--type", nothing.name, "--status", "done").out == "1 requeued.\n"
    assert Ran("requeue", "--type", leave_effect.name).out == "0 requeued.\n"
    assert done.refresh().status == "ready"


@alone
def test_of_300_dead_jobs_20_whose_key_another_has_are_reported_and_the_others_requeued(engine: Engine) -> None:
    made = dead(engine, 300)
    for number, job in enumerate(made[100:120]):
        alter(engine, job.pk, meta={"key": f"k{number}"}, key_holds="unfinished")
        nothing.using(idempotency_key=f"k{number}", unique="unfinished", delay=60).enqueue(number)
    ran = Ran("requeue", "--status", "dead")
    assert (ran.code, ran.out) == (1, "280 requeued, 20 refused.\n")
    assert ran.error == "20 jobs were left as they are, for the reasons above."
    reasons = [line for line in ran.err.splitlines() if not line.endswith(" so far")]
    assert len(reasons) == 20
    assert reasons[0].startswith(f"Job {made[100].pk} cannot be requeued: its idempotency key 'k0' is held by job ")
    assert [job for job, status in statuses(engine).items() if status == "dead"] == ids(made[100:120])
    again = Ran("requeue", "--status", "dead", "--json")
    assert (again.code, again.data["requeued"], len(again.data["refused"])) == (1, 0, 20)
    assert set(again.data["refused"][0]) == {"id", "why"}


@alone
def test_a_filter_walks_all_ids_in_order_in_small_steps_and_counts_as_it_goes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "BATCH", 2)
    monkeypatch.setattr(choose, "SPAN", 3)
    made = enqueue(25)
    Job.objects.using(engine.alias).filter(pk__in=ids(made[4:12])).delete()
    nothing.using(queue="other").enqueue()
    steps = list(bulk.cancel(choose.Choice(states=("ready",), queue="default")))
    assert [step.done for step in steps] == [{"cancelled": sum(step.done.values())} for step in steps]
    assert sum(step.done["cancelled"] for step in steps) == 17
    assert max(step.done["cancelled"] for step in steps) == 2
    assert list(statuses(engine).values()) == ["cancelled"] * 17 + ["ready"]
    ran = Ran("requeue", "--status", "cancelled")
    assert (ran.out, "20 requeued so far" in ran.err) == ("17 requeued.\n", False)
    monkeypatch.setattr(choose, "BATCH", 1)
    ran = Ran("cancel", "--status", "ready")
    assert (ran.out, ran.err) == ("18 cancelled, 0 asked to stop.\n", "10 cancelled, 0 asked to stop so far\n")


@alone
def test_cancel_ends_what_waits_asks_what_runs_and_reports_what_has_ended(engine: Engine) -> None:
    (runs,) = enqueue(1)
    claim_one(engine)
    (waits,) = enqueue(1)
    ended = nothing.enqueue()
    ended.cancel()
    ran = Ran("cancel", *map(str, [ended.pk, waits.pk, runs.pk, 10**9]), "--why", "no more")
    assert (ran.code, ran.out) == (1, "1 cancelled, 1 asked to stop, 2 refused.\n")
    assert ran.err.splitlines() == [
        f"Job {ended.pk} is cancelled already; only what waits or runs can be cancelled.",
        "There is no job 1000000000.",
    ]
    assert (waits.refresh().status, runs.refresh().status) == ("cancelled", "running")
    assert waits.cancel_reason == runs.cancel_reason == "by ada: no more"
    assert Ran("cancel", "--queue", "default", "--json").data == {"cancelled": 0, "asked": 1, "refused": []}


@alone
def test_a_job_that_has_moved_on_since_it_was_chosen_is_left(engine: Engine) -> None:
    (job,) = dead(engine, 1)
    found = bulk.requeue(choose.Choice(states=("dead",), ids=(job.pk,)))
    job.requeue()
    engine.complete([Done(claim_one(engine), None)])
    (came,) = found
    assert came.refused == {job.pk: f"Job {job.pk} is done; only dead was asked for."}
    assert job.refresh().status == "done"


@on_postgresql
@beside_others
def test_a_row_that_somebody_holds_is_reported_and_the_others_are_done_and_committed(
    engine: Engine, settings: Any
) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.3}
    made = dead(engine, 3)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", made[0].pk)
        ran = Ran("requeue", "--status", "dead")
        assert (ran.code, ran.out) == (1, "2 requeued, 1 refused.\n")
        assert "did not end within 0.3 s" in ran.err
        purged = Ran("purge", str(made[0].pk))
        assert (purged.code, purged.err) == (1, f"Job {made[0].pk} is held by another transaction; try again.\n")
        other.rollback()
    assert list(statuses(engine).values()) == ["dead", "ready", "ready"]


@on_postgresql
@beside_others
def test_rows_are_not_held_for_long_while_others_are_waited_for(
    engine: Engine, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.3}
    monkeypatch.setattr(bulk, "LONGEST_HOLD", 0.1)
    made = dead(engine, 3)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", made[1].pk)
        steps = bulk.requeue(choose.Choice(states=("dead",)))
        next(steps)
        # Committed before the third is come to.
        assert list(statuses(engine).values()) == ["ready", "dead", "dead"]
        assert sum(step.done.get("requeued", 0) for step in steps) == 1
        other.rollback()


# Purge.


@alone
def test_purge_deletes_what_ended_and_never_what_runs_or_waits(engine: Engine) -> None:
    (ended,) = dead(engine, 1)
    (runs,) = enqueue(1)
    claim_one(engine)
    (waits,) = enqueue(1)
    ran = Ran("purge", "--queue", "default")
    assert (ran.code, ran.out) == (0, "1 deleted.\n")
    assert statuses(engine) == {runs.pk: "running", waits.pk: "ready"}
    ran = Ran("purge", str(ended.pk), str(runs.pk), str(waits.pk))
    assert (ran.code, ran.out) == (1, "0 deleted, 3 refused.\n")
    assert ran.err.splitlines() == [
        f"There is no job {ended.pk}.",
        f"Job {runs.pk} runs; what runs is never deleted. Cancel it first.",
        f"Job {waits.pk} waits; what waits is deleted only when --status ready is said.",
    ]
    assert Ran("purge", "--status", "ready", str(waits.pk)).out == "1 deleted.\n"
    assert statuses(engine) == {runs.pk: "running"}
    assert [came.done for came in bulk.purge(choose.Choice(states=("running", "ready"), ids=(runs.pk,)))] == [{}]
    assert statuses(engine) == {runs.pk: "running"}


@alone
def test_purge_narrows_by_age_status_queue_type_and_limit(engine: Engine) -> None:
    made = dead(engine, 4)
    for job, days in zip(made, (9, 8, 3, 0), strict=True):
        age(engine, job, days=days, minutes=1)
    assert Ran("purge", "--older-than", "30d", "--json").data == {"deleted": 0, "refused": []}
    for options in (["--status", "done"], ["--queue", "x"], ["--type", "x"]):
        assert Ran("purge", *options, "--json").data["deleted"] == 0
    dry = Ran("purge", "--older-than", "7d", "--dry-run")
    assert (dry.out, len(statuses(engine))) == ("2 to be deleted.\n", 4)
    assert Ran("purge", "--older-than", "7d", "--limit", "1", "--json").data["deleted"] == 1
    assert list(statuses(engine)) == ids(made[1:])
    assert Ran("purge", "--older-than", "604800", "--json").data["deleted"] == 1
    assert Ran("purge", "--older-than", "12h", "--status", "dead", "--json").data["deleted"] == 1
    assert list(statuses(engine)) == [made[3].pk]


@alone
def test_a_key_that_must_still_hold_keeps_its_row_unless_it_is_said(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"IDEMPOTENCY_WINDOW": 3600, "KEEP_DONE": 3600}
    young, old, plain = (dead(engine, 1, idempotency_key=key)[0] for key in ("young", "old", None))
    age(engine, young, minutes=59)
    age(engine, old, minutes=61)
    ran = Ran("purge", str(young.pk))
    assert ran.code == 1
    assert ran.err.startswith(f"Job {young.pk} has the idempotency key 'young' and finished within IDEMPOTENCY_WINDOW")
    ran = Ran("purge", "--status", "dead")
    assert (ran.code, ran.out, list(statuses(engine))) == (0, "2 deleted, 1 kept for their keys.\n", [young.pk])
    assert not Job.objects.using(engine.alias).filter(pk__in=[old.pk, plain.pk]).exists()
    assert Ran("purge", "--status", "dead", "--with-keys").out == "1 deleted.\n"
