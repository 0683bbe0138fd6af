"""Changing a job that waits, and requeueing one with other arguments, by what they write."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from django_jobs import IdempotencyConflict, InvalidJob, InvalidJobType, JobDoesNotExist, StateConflict, registry
from django_jobs.decorators import job as as_job
from django_jobs.models import ArchivedJob, Job
from django_jobs.queue import operate
from django_jobs.queue.edit import edit, run_now
from django_jobs.queue.edited import restored
from django_jobs.queue.seen import version
from django_jobs.redact import MARK
from tests.acts import FINAL, acts, in_state
from tests.app.jobs import log_in, nothing
from tests.archive.common import ended, go_round
from tests.engines.common import alone, alter, claim, clock, row

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone


def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs}


def test_arguments_priority_and_due_time_of_a_job_that_waits_are_changed_at_once(engine: Engine) -> None:
    job = nothing.enqueue(1)
    before, soon = row(engine, job.pk), (clock(engine) + timedelta(hours=1)).replace(microsecond=0)
    changed = edit(job.pk, payload=call(number=2), priority=7, run_at=soon, why="wrong", by="ada")
    assert changed == ("arguments 1, number", "priority", "due time")
    after = row(engine, job.pk)
    (line,) = after["history"]
    assert after == before | {"payload": call(number=2), "priority": 7, "run_at": soon, "history": [line]}
    said = "by ada: wrong (arguments 1, number, priority, due time)"
    assert line == {"run": 0, "cause": "edited", "error": said, "worker": "", "seconds": 0.0, "at": line["at"]}


def test_what_is_claimed_after_an_edit_has_the_new_arguments(engine: Engine) -> None:
    job = nothing.enqueue(1)
    edit(job.pk, payload=call(2))
    (claimed,) = claim(engine)
    assert (claimed.run.id, json.loads(claimed.payload)) == (job.pk, call(2))


def test_an_edit_to_what_is_there_already_writes_nothing(engine: Engine) -> None:
    job = nothing.using(priority=3).enqueue(1)
    before = row(engine, job.pk)
    assert edit(job.pk, payload=call(1), priority=3, run_at=job.run_at) == ()
    assert row(engine, job.pk) == before


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"payload": call(1, 2)}, InvalidJobType, r"do not fit tests\.app\.jobs\.nothing.*too many positional"),
        ({"payload": call(count=1)}, InvalidJobType, "unexpected keyword argument 'count'"),
        ({"payload": call({1: 2})}, InvalidJobType, "JSON keys are text"),
        ({"payload": call("\x00")}, InvalidJob, "has a NUL character"),
        ({"payload": call(float("nan"))}, InvalidJob, "JSON has no word for"),
        ({"payload": call("x" * 2**20)}, InvalidJob, "MAX_PAYLOAD_BYTES allows"),
        ({"payload": [1]}, InvalidJob, "The arguments are"),
        ({"payload": {"args": [], "kwargs": {}, "more": 1}}, InvalidJob, "The arguments are"),
        ({"priority": 101}, InvalidJob, "whole number from -100 to 100"),
        ({"priority": True}, InvalidJobType, "whole number"),
        ({"run_at": "tomorrow"}, InvalidJobType, "give a datetime"),
        ({"run_at": datetime(2026, 1, 1)}, InvalidJob, "without a time zone"),
        ({"by": 3}, InvalidJobType, "by is 3; give text"),
    ],
)
def test_what_an_enqueue_would_not_take_is_refused_and_nothing_is_written(
    engine: Engine, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    job = nothing.enqueue(1)
    before = row(engine, job.pk)
    with pytest.raises(error, match=says):
        edit(job.pk, **{"priority": 5, **given})
    assert row(engine, job.pk) == before


def test_arguments_of_a_type_that_is_not_known_here_are_refused_and_its_priority_is_not(engine: Engine) -> None:
    job = nothing.enqueue(1)
    alter(engine, job.pk, type="shop.gone")
    with pytest.raises(InvalidJob, match=r"'shop\.gone' is not known to this process"):
        edit(job.pk, payload=call(2))
    assert edit(job.pk, priority=1) == ("priority",)


def test_a_due_time_after_that_by_which_it_must_start_is_refused(engine: Engine) -> None:
    job = nothing.using(expires=timedelta(hours=1)).enqueue()
    with pytest.raises(InvalidJob, match="is cancelled unless it starts before"):
        edit(job.pk, run_at=timezone.now() + timedelta(hours=2))
    assert edit(job.pk, run_at=timezone.now() + timedelta(minutes=5)) == ("due time",)


@pytest.mark.parametrize("status", ["running", *FINAL])
def test_what_does_not_wait_is_not_edited(engine: Engine, status: str) -> None:
    job = in_state(engine, status)
    before = row(engine, job.pk)
    for act in (lambda: edit(job.pk, priority=5), lambda: run_now(job.pk)):
        with pytest.raises(StateConflict, match=rf"Job {job.pk} .*; only a job that waits can be changed"):
            act()
    assert row(engine, job.pk) == before


def test_what_is_gone_or_archived_is_not_edited(engine: Engine) -> None:
    with pytest.raises(JobDoesNotExist):
        edit(999, priority=5)
    job = ended(engine, "done", 3)
    go_round(engine)
    with pytest.raises(StateConflict, match="is done and archived; only a job that waits"):
        edit(job.pk, priority=5)


@pytest.mark.parametrize("reason", ["type", "pause", "suspect"])
def test_what_is_parked_stays_parked_for_what_it_is(engine: Engine, reason: str) -> None:
    job = nothing.enqueue(1)
    alter(engine, job.pk, parked=reason, suspect=reason == "suspect", run_at=clock(engine) + timedelta(hours=1))
    run_now(job.pk)
    edit(job.pk, payload=call(2), priority=5)
    job.refresh()
    assert (job.parked, job.suspect, job.payload, job.priority) == (reason, reason == "suspect", call(2), 5)
    assert job.run_at <= clock(engine)


def test_a_job_for_later_and_a_retry_run_now_with_the_attempts_they_have(engine: Engine) -> None:
    later, retry = in_state(engine, "scheduled"), in_state(engine, "scheduled")
    alter(engine, retry.pk, attempts=2)
    for job in (later, retry):
        run_now(job.pk, why="now", by="ada")
    assert [claimed.run.id for claimed in claim(engine, 5)] == [later.pk, retry.pk]
    assert retry.refresh().attempts == 2
    assert acts(later.refresh()) == [(0, "edited", "by ada: now (due time)")]


def test_a_second_click_on_run_now_says_that_it_is_due_already(engine: Engine) -> None:
    job = in_state(engine, "scheduled")
    run_now(job.pk)
    before = row(engine, job.pk)
    with pytest.raises(StateConflict, match="is due already"):
        run_now(job.pk)
    assert row(engine, job.pk) == before


def test_one_who_saw_another_state_changes_nothing(engine: Engine) -> None:
    job = in_state(engine, "scheduled")
    seen = version(job)
    edit(job.pk, priority=1, as_seen=seen)
    before = row(engine, job.pk)
    for act in (lambda: edit(job.pk, priority=2, as_seen=seen), lambda: run_now(job.pk, as_seen=seen)):
        with pytest.raises(StateConflict, match="was changed since it was shown"):
            act()
    assert row(engine, job.pk) == before
    assert edit(job.pk, priority=2, as_seen=version(job.refresh())) == ("priority",)


def test_after_an_edit_the_key_stands_for_the_new_call(engine: Engine) -> None:
    job = nothing.using(idempotency_key="k").enqueue(1)
    edit(job.pk, payload=call(2))
    assert nothing.using(idempotency_key="k").enqueue(2).pk == job.pk
    with pytest.raises(IdempotencyConflict):
        nothing.using(idempotency_key="k").enqueue(1)
    assert Job.objects.using(engine.alias).count() == 1


def test_arguments_are_stored_in_the_words_of_an_enqueue(engine: Engine) -> None:
    job = log_in.enqueue("eva", "t", tries=3, far=1e23)
    edit(job.pk, payload=call("eva", "t", tries=4, far=1e23, name="ünï"))
    job.refresh()
    assert job.payload == call("eva", "t", tries=4, far=1e23, name="ünï")
    assert isinstance(job.payload["kwargs"]["far"], float)


def test_the_history_names_what_was_changed_and_never_its_values(engine: Engine) -> None:
    job = log_in.enqueue("eva", "old secret", tries=3)
    edit(job.pk, payload=call("eva", "new secret", tries=4))
    assert acts(job.refresh()) == [(0, "edited", "no reason given (arguments 2, tries)")]


# Requeues.


@pytest.mark.parametrize("status", FINAL)
def test_a_job_that_ended_runs_again_with_other_arguments(engine: Engine, status: str) -> None:
    job = in_state(engine, status)
    before = row(engine, job.pk)
    assert operate.requeue(job.pk, payload=call(2), why="fixed", by="ada", as_seen=version(job)) == job.pk
    (claimed,) = claim(engine)
    assert (claimed.run.id, json.loads(claimed.payload)) == (job.pk, call(2))
    assert acts(job.refresh())[-1] == (1, "requeued", "by ada: fixed (with other arguments 1)")
    assert len(job.history) == len(before["history"]) + 1


@pytest.mark.parametrize("payload", [call(1, 2), call(count=2), call("\x00"), 3])
def test_a_requeue_with_arguments_that_do_not_fit_writes_nothing(engine: Engine, payload: Any) -> None:
    job = in_state(engine, "dead")
    before = row(engine, job.pk)
    with pytest.raises((InvalidJob, InvalidJobType)):
        operate.requeue(job.pk, payload=payload)
    assert row(engine, job.pk) == before


def test_a_requeue_of_what_was_requeued_and_died_again_since_it_was_seen_is_refused(engine: Engine) -> None:
    job = in_state(engine, "dead")
    seen = version(job)
    job.requeue()
    (claimed,) = claim(engine)
    engine.settle([_dead(claimed.run)], 10)
    before = row(engine, job.pk)
    with pytest.raises(StateConflict, match="was changed since it was shown: it is dead now"):
        operate.requeue(job.pk, payload=call(2), as_seen=seen)
    assert row(engine, job.pk) == before


def _dead(run: Any) -> Any:
    from tests.acts import line
    from tests.engines.common import settled

    return settled(run, status="dead", counts="attempt", error="no", entry=line(run))


def test_what_is_archived_is_made_anew_with_other_arguments_and_stays_as_it_was(engine: Engine) -> None:
    job = ended(engine, "done", 3)
    go_round(engine)
    archived = ArchivedJob.objects.using(engine.alias).get(pk=job.pk)
    again = operate.requeue(job.pk, payload=call(2))
    found = Job.objects.using(engine.alias).get(pk=again)
    assert (found.payload, found.status) == (call(2), "ready")
    archived.refresh_from_db(using=engine.alias)
    assert (archived.payload, archived.requeued_as) == (call(1), again)


# Marks in place of what was masked.

STORED = call("eva", "s3cret", 1, 2, tries=3, logins=[{"password": "a", "at": 1}, {"password": "b", "at": 2}])


def test_a_mark_stands_for_what_was_masked_there(engine: Engine) -> None:
    given = call("bob", MARK, 1, tries=4, logins=[{"password": MARK, "at": 1}, {"password": "new", "at": 2}])
    assert restored(log_in.name, given, STORED) == call(
        "bob", "s3cret", 1, tries=4, logins=[{"password": "a", "at": 1}, {"password": "new", "at": 2}]
    )


@pytest.mark.parametrize(
    "given",
    [
        call(MARK, MARK),
        call("eva", MARK, MARK),
        call("eva", MARK, tries=MARK),
        call("eva", MARK, new_token=MARK),
        call("eva", MARK, logins=[{"password": MARK, "at": 2}]),
        call("eva", MARK, logins=[{"password": MARK, "at": 2}, {"password": MARK, "at": 1}]),
        call("eva", MARK, logins=[{"password": MARK}, {"password": "b", "at": 2}, {"password": "c"}]),
    ],
)
def test_a_mark_that_stands_for_nothing_or_for_what_may_have_moved_is_refused(engine: Engine, given: Any) -> None:
    with pytest.raises(InvalidJob, match=MARK):
        restored(log_in.name, given, STORED)


def test_a_mark_that_was_stored_as_such_stays(engine: Engine) -> None:
    assert restored(log_in.name, call(MARK, "t"), call(MARK, "s")) == call(MARK, "t")


def several(*tokens: str) -> None: ...


def test_of_arguments_that_share_a_masked_name_none_may_be_left_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    as_job(name="edit.several")(several)
    assert restored("edit.several", call(MARK, "new"), call("a", "b")) == call("a", "new")
    with pytest.raises(InvalidJob, match="argument 1 is"):
        restored("edit.several", call(MARK), call("a", "b"))
