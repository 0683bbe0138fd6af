"""Archived jobs are found wherever a job is asked for, and run again as new ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import JobDoesNotExist, StateConflict
from django_jobs.conf import conf
from django_jobs.engines import postgresql_archive
from django_jobs.engines.archive import Part, archive
from django_jobs.engines.sql import statement
from django_jobs.engines.values import Done
from django_jobs.models import ArchivedJob, Effect, Job
from django_jobs.models.clock import Clock
from django_jobs.queue import operate
from django_jobs.queue.archive import ages
from tests.acts import Ran, acts
from tests.app.jobs import nothing
from tests.archive.common import DAY, archived, ended, go_round, here
from tests.engines.common import alone, alter, beside_others, claim, claim_one, on_postgresql, row, settled
from tests.threads import Session, session, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


def in_archive(engine: Engine, status: str = "done", days: float = 31, **options: Any) -> ArchivedJob:
    job = ended(engine, status, days, **options)
    go_round(engine)
    return ArchivedJob.objects.using(engine.alias).get(pk=job.pk)


@alone
@pytest.mark.parametrize("status", ["done", "cancelled", "dead", "failed"])
def test_an_archived_job_is_requeued_as_a_new_one_with_what_it_was_called_with(engine: Engine, status: str) -> None:
    old = in_archive(engine, status, priority=9, queue="mail", max_attempts=3, timeout=7.5)
    new = operate.requeue(old.pk, why="asked for", by="ada")
    assert new != old.pk
    found = row(engine, new)
    told = ("type", "queue", "priority", "payload", "max_attempts", "timeout", "schedule", "slot", "suspect")
    assert {name: found[name] for name in told} == {name: getattr(old, name) for name in told}
    assert (found["status"], found["attempts"], found["losses"], found["token"]) == ("ready", 0, 0, 0)
    assert found["meta"] == {"requeued_from": old.pk}
    assert acts(Job.objects.using(engine.alias).get(pk=new)) == [
        (0, "requeued", f"by ada: asked for (it was job {old.pk}, which is archived)")
    ]
    assert [claimed.id for claimed in claim(engine)] == [new]
    assert archived(engine) == [old.pk]


@alone
def test_the_old_one_says_as_which_it_was_requeued_and_is_not_requeued_twice(engine: Engine) -> None:
    old = in_archive(engine)
    new = old.requeue(by="ada")
    assert ArchivedJob.objects.using(engine.alias).get(pk=old.pk).requeued_as == new.pk
    assert old.explain().endswith(f"ago, and requeued as job {new.pk}.")
    with pytest.raises(
        StateConflict, match=f"Job {old.pk} is archived, and was requeued as job {new.pk}; look at that one."
    ):
        old.requeue()
    Job.objects.using(engine.alias).filter(pk=new.pk).delete()
    assert old.requeue().pk not in (old.pk, new.pk)


@alone
@pytest.mark.parametrize("unique", ["window", "unfinished"])
def test_a_new_one_has_no_key_since_another_job_may_have_it(engine: Engine, unique: Any) -> None:
    old = in_archive(engine, idempotency_key="key", unique=unique)
    holder = nothing.using(idempotency_key="key").enqueue(1)
    new = operate.requeue(old.pk)
    assert row(engine, new)["idempotency_key"] is None
    assert row(engine, holder.pk)["idempotency_key"] == "key"
    # Nor when it is requeued once more, after its end.
    run = next(claimed.run for claimed in claim(engine, 9) if claimed.id == new)
    engine.settle([settled(run, status="dead", error="no")], 10)
    assert operate.requeue(new) == new
    assert row(engine, new)["idempotency_key"] is None


@alone
def test_a_zombie_of_the_old_one_cannot_write_to_the_new_one(engine: Engine) -> None:
    job = nothing.enqueue(1)
    zombie = claim_one(engine)
    engine.complete([Done(zombie, None)])
    Job.objects.using(engine.alias).filter(pk=job.pk).update(
        finished_at="2020-01-01T00:00Z", created_at="2020-01-01T00:00Z"
    )
    go_round(engine)
    new = operate.requeue(job.pk)
    run = claim_one(engine)
    assert (run.id, run.id == zombie.id) == (new, False)
    assert engine.complete([Done(zombie, '"late"')]) == {}
    assert row(engine, new)["status"] == "running"


@alone
def test_a_job_object_goes_on_to_tell_what_became_of_it(engine: Engine) -> None:
    job = ended(engine, "done", 3, idempotency_key="key")
    go_round(engine)
    assert job.refresh().status == "done"
    assert (job.result, job.idempotency_key, job.locked_by, job.parked) == ("result", "key", None, None)
    assert job.explain().startswith("Done 3 days ago, ")
    assert "; archived 0." in job.explain()
    assert job.explain().endswith(" s ago.")
    again = job.requeue(why="asked for")
    assert (again.pk != job.pk, again.status, again.meta["requeued_from"]) == (True, "ready", job.pk)


@beside_others
def test_who_waits_for_the_end_of_a_job_is_told_when_it_is_archived_meanwhile(engine: Engine) -> None:
    job = nothing.enqueue(1)
    run = claim_one(engine)
    engine.complete([Done(run, '"told"')])
    alter(engine, job.pk, finished_at=Clock() - 2 * DAY, created_at=Clock() - 2 * DAY)
    assert go_round(engine).archived == 1
    assert job.status == "ready"
    assert job.wait(5).result == "told"


@alone
def test_a_job_that_is_nowhere_is_said_to_be_gone(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"ARCHIVE_FOR": 0}
    job = ended(engine, "done", 3)
    go_round(engine)
    assert job.explain() == f"Job {job.pk} is gone: it was deleted."
    for act in (job.refresh, job.requeue, job.cancel):
        with pytest.raises(JobDoesNotExist):
            act()


@alone
def test_an_archived_job_cannot_be_cancelled(engine: Engine) -> None:
    old = in_archive(engine)
    with pytest.raises(StateConflict, match=f"Job {old.pk} is done already"):
        operate.cancel(old.pk)


@alone
def test_an_archived_job_is_shown_with_the_time_since_when_it_is_archived(engine: Engine) -> None:
    old = in_archive(engine, "dead", priority=3)
    Effect.objects.using(engine.alias).create(kind="outside", key="card", job_id=old.pk)
    ran = Ran("show", str(old.pk))
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"Job {old.pk}")
    assert "; archived 0." in lines[1]
    assert "May have happened: 'card'" in ran.out
    assert [line.split()[0] for line in lines if line.startswith("archived at")] == ["archived"]
    data = Ran("show", str(old.pk), "--json").data
    assert (data["archived_at"] is not None, data["requeued_as"], data["priority"]) == (True, None, 3)
    new = operate.requeue(old.pk)
    assert f"requeued as      job {new}" in Ran("show", str(old.pk)).out
    assert Ran("show", str(new), "--json").data["archived_at"] is None


@alone
def test_the_command_requeues_archived_and_other_jobs_and_says_which_are_new(engine: Engine) -> None:
    hot = ended(engine, "dead", 1)
    old = in_archive(engine)
    ran = Ran("requeue", str(old.pk), str(hot.pk), "--why", "asked for")
    new = max(here(engine))
    assert (ran.code, ran.out) == (0, "2 requeued.\n")
    assert ran.err == f"Job {old.pk} is archived: it is requeued as the new job {new}, without an idempotency key.\n"
    assert here(engine) == [hot.pk, new]
    ran = Ran("requeue", str(old.pk), "--json")
    assert (ran.code, ran.data["requeued"], len(ran.data["refused"])) == (1, 0, 1)


@alone
def test_the_command_names_the_new_job_in_its_json(engine: Engine) -> None:
    old = in_archive(engine)
    ran = Ran("requeue", str(old.pk), "--json")
    assert ran.data == {"requeued": 1, "refused": [], "as_new_jobs": [{"id": old.pk, "as": max(here(engine))}]}


@alone
def test_a_purge_by_id_says_that_a_job_is_archived(engine: Engine) -> None:
    old = in_archive(engine)
    ran = Ran("purge", str(old.pk))
    assert ran.code == 1
    assert f"Job {old.pk} is archived; it is deleted with all that was archived on its day" in ran.err


# Requeue and mover meet.


@on_postgresql
@beside_others
def test_a_requeue_that_meets_the_mover_makes_a_new_job_and_never_says_that_it_did_nothing(
    engine: Engine, other: Session
) -> None:
    job = ended(engine, "done", 2)
    other.begin()
    assert other.do(partial(go_round, engine)).archived == 1  # and has not committed
    with session(engine.alias) as person:
        pending = person.start(partial(operate.requeue, job.pk))
        wait_for_blocked()
        other.commit()
        new = pending.result(10)
    assert (here(engine), archived(engine)) == ([new], [job.pk])
    assert new != job.pk


@on_postgresql
@beside_others
def test_a_mover_that_meets_a_requeue_passes_over_the_job_without_waiting(engine: Engine, other: Session) -> None:
    held, free = ended(engine, "done", 2), ended(engine, "done", 2)
    other.begin()
    assert other.do(partial(operate.requeue, held.pk)) == held.pk
    assert go_round(engine).archived == 1
    other.commit()
    assert go_round(engine).archived == 0
    assert (here(engine), archived(engine)) == ([held.pk], [free.pk])
    assert held.refresh().status == "ready"


@on_postgresql
@beside_others
def test_a_job_that_was_requeued_after_the_mover_had_its_snapshot_stays(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended(engine, "done", 2)
    found = archive(engine.alias)
    found.prepare()
    # Waits when its snapshot is taken, and before it looks at the rows.
    waiting = statement("archive").replace(
        "WHERE id >", "WHERE (SELECT pg_advisory_xact_lock(42)) IS NOT NULL AND id >", 1
    )
    monkeypatch.setattr(postgresql_archive, "statement", lambda name: waiting)
    monkeypatch.setattr(postgresql_archive, "LOCK_TIMEOUT", "20s")
    with session(engine.alias) as holder:
        holder.begin()
        holder.sql("SELECT pg_advisory_xact_lock(42)")
        moved = other.start(partial(found.move, Part(0, job.pk, 5), ages(conf()), True))
        wait_for_blocked()
        operate.requeue(job.pk)
        holder.commit()
        assert moved.result(10).number == 0
    assert (job.refresh().status, here(engine), archived(engine)) == ("ready", [job.pk], [])


@on_postgresql
@beside_others
def test_two_people_who_requeue_an_archived_job_at_once_make_one_new_job(engine: Engine, other: Session) -> None:
    old = in_archive(engine)
    other.begin()
    new = other.do(partial(operate.requeue, old.pk))
    with session(engine.alias) as second:
        late = second.start(partial(operate.requeue, old.pk))
        wait_for_blocked()
        other.commit()
        with pytest.raises(StateConflict, match=f"was requeued as job {new}"):
            late.result(10)
    assert here(engine) == [new]
