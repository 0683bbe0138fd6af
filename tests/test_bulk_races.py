"""Acts upon many jobs that meet each other, and forms that are sent at the same moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from django_jobs import Context, Snooze, bulk
from django_jobs.models import BulkAct, Job
from django_jobs.queue import bulk_step, operate
from django_jobs.queue.bulk_acts import TYPE
from django_jobs.queue.sought import Sought
from tests.bulk import begin, make, statuses, take_step
from tests.engines.common import beside_others, on_postgresql
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@beside_others
def test_a_form_that_is_sent_many_times_at_once_makes_one_act_and_one_job(engine: Engine) -> None:
    make(engine.alias, 3)
    wanted, token = bulk.Wanted(act="requeue", sought=Sought(state="dead")), uuid4()
    found = together([lambda: bulk.begin(wanted, token, counted=3, is_capped=False)] * 4)
    assert sorted(made for _act, made in found) == [False, False, False, True]
    assert len({act.pk for act, _made in found}) == 1
    assert Job.objects.using(engine.alias).filter(type=TYPE).count() == 1


@on_postgresql
@beside_others
@pytest.mark.parametrize("commits", [True, False])
def test_a_form_that_is_sent_while_the_first_is_being_stored_waits_for_what_comes_of_it(
    engine: Engine, commits: bool
) -> None:
    wanted, token = bulk.Wanted(act="requeue", sought=Sought(state="dead")), uuid4()
    send = partial(bulk.begin, wanted, token, counted=3, is_capped=False)
    with session(engine.alias) as one, session(engine.alias) as other:
        one.begin()
        one.do(send)
        late = other.start(send)
        wait_for_blocked()
        one.commit() if commits else one.rollback()
        assert late.result(10)[1] is not commits
    assert BulkAct.objects.using(engine.alias).count() == 1


@beside_others
def test_two_acts_that_overlap_come_to_no_job_twice(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 7)
    for name in ("LONGEST", "LONGEST_ON_SQLITE"):
        monkeypatch.setattr(bulk_step, name, 0.0)
    ids = make(engine.alias, 60)
    both = [begin(sought=Sought(state=state)) for state in ("dead", "dead-letters")]

    def finish(act: BulkAct) -> None:
        while take_step(act).pause == 0:
            pass

    together([partial(finish, act) for act in both])
    assert statuses(engine.alias, ids) == ["ready"] * 60
    jobs = Job.objects.using(engine.alias).filter(pk__in=ids)
    assert {len(history) for history in jobs.values_list("history", flat=True)} == {2}
    assert sum(BulkAct.objects.using(engine.alias).get(pk=act.pk).done for act in both) == 60


@on_postgresql
@beside_others
def test_a_step_that_meets_a_person_waits_and_reports_what_she_did(engine: Engine) -> None:
    ids = make(engine.alias, 3)
    act = begin()
    with session(engine.alias) as person, session(engine.alias) as other:
        person.begin()
        person.do(partial(operate.requeue, ids[1]))
        assert other.do(partial(take_step, act)).pause == 0
        assert statuses(engine.alias, ids) == ["ready", "dead", "dead"]
        late = other.start(partial(take_step, act))
        wait_for_blocked()
        person.commit()
        assert late.result(10).pause == 0
        while other.do(partial(take_step, act)).pause == 0:
            pass
    act.refresh_from_db()
    assert (act.done, act.refused) == (2, 1)
    assert [refusal[:2] for refusal in act.refusals] == [
        [ids[1], f"Job {ids[1]} waits; it can be requeued when it has ended."]
    ]
    assert statuses(engine.alias, ids) == ["ready"] * 3


@on_postgresql
@beside_others
def test_a_cancel_that_meets_a_step_waits_for_its_end_and_counts_it(engine: Engine) -> None:
    make(engine.alias, 30)
    act = begin(per_minute=120)
    with session(engine.alias) as runs, session(engine.alias) as person:
        runs.begin()
        runs.do(partial(take_step, act))
        late = person.start(partial(bulk.cancel, act.pk))
        wait_for_blocked()
        runs.commit()
        found = late.result(10)
    assert (found.state, found.done) == ("cancelled", 10)


def context(act: BulkAct, stop: bool = False) -> Context:
    return Context(
        job_id=act.job_id or 0,
        attempt=1,
        run=1,
        idempotency_key="",
        slot=None,
        stop_asked=lambda: stop,
        report=lambda _progress: None,
    )


@beside_others
def test_a_run_that_is_to_stop_takes_no_further_step_and_is_not_charged(engine: Engine) -> None:
    ids = make(engine.alias, 3)
    act = begin()
    act.refresh_from_db()
    came = bulk.carry_out(context(act, stop=True), act.pk)
    assert (type(came), getattr(came, "delay", None)) == (Snooze, 0.0)
    assert statuses(engine.alias, ids) == ["dead"] * 3
    assert bulk.carry_out(context(act), act.pk) == {"done": 3, "refused": 0}


@on_postgresql
@beside_others
def test_a_run_that_meets_a_lock_comes_again_uncharged(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.2}
    make(engine.alias, 3)
    act = begin()
    act.refresh_from_db()
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_bulkact FOR UPDATE")
        came = bulk.carry_out(context(act), act.pk)
    assert (type(came), getattr(came, "delay", None)) == (Snooze, bulk.AGAIN_SECONDS)


@on_postgresql
@beside_others
def test_a_run_that_is_chosen_to_end_a_deadlock_comes_again_uncharged(engine: Engine) -> None:
    ids = make(engine.alias, 1)
    act = begin()
    act.refresh_from_db()
    with session(engine.alias) as person, session(engine.alias) as runs:
        person.begin()
        person.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", ids[0])
        late = runs.start(lambda: bulk.carry_out(context(act), act.pk))
        wait_for_blocked()
        # It has waited for longer, and so is the first to find out.
        person.sql("SELECT 1 FROM django_jobs_bulkact FOR UPDATE")
        came = late.result(10)
        person.rollback()
    assert (type(came), getattr(came, "delay", None)) == (Snooze, bulk.AGAIN_SECONDS)
    assert statuses(engine.alias, ids) == ["dead"]
