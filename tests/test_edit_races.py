"""Edits that meet claims and each other in the middle of something."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_jobs import StateConflict, notify
from django_jobs.models import Job
from django_jobs.queue import operate
from django_jobs.queue.edit import edit, run_now
from tests.acts import acts, in_state
from tests.app.jobs import nothing
from tests.engines.common import beside_others, claim, on_postgresql, row
from tests.listening import listening
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = beside_others
NEW = {"args": [2], "kwargs": {}}


@on_postgresql
@pytest.mark.parametrize("ends", [True, False])
def test_an_edit_that_meets_a_claim_is_refused_whole_or_made_whole(engine: Engine, ends: bool) -> None:
    job = nothing.enqueue(1)
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        (claimed,) = other.do(lambda: claim(engine))
        late = person.start(partial(edit, job.pk, payload=NEW, priority=5))
        wait_for_blocked()
        other.commit() if ends else other.rollback()
        if ends:
            with pytest.raises(StateConflict, match=f"Job {job.pk} runs; only a job that waits can be changed"):
                late.result(10)
        else:
            late.result(10)
    assert json.loads(claimed.payload) == {"args": [1], "kwargs": {}}
    job.refresh()
    expected = ("running", [1], 0, []) if ends else ("ready", [2], 5, ["edited"])
    assert (job.status, job.args, job.priority, [cause for _, cause, _ in acts(job)]) == expected


@on_postgresql
def test_a_claim_that_meets_an_edit_passes_the_job_by_and_takes_it_as_it_is_then(engine: Engine) -> None:
    job, free = nothing.enqueue(1), nothing.enqueue(9)
    with session(engine.alias) as person:
        person.begin()
        person.do(partial(edit, job.pk, payload=NEW))
        assert [(claimed.run.id, json.loads(claimed.payload)["args"]) for claimed in claim(engine, 5)] == [
            (free.pk, [9])
        ]
        person.commit()
    assert [(claimed.run.id, json.loads(claimed.payload)["args"]) for claimed in claim(engine, 5)] == [(job.pk, [2])]


@on_postgresql
@pytest.mark.parametrize("ends", [True, False])
def test_of_two_edits_at_once_each_is_told_of(engine: Engine, ends: bool) -> None:
    job = nothing.enqueue(1)
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(partial(edit, job.pk, payload=NEW, by="ada"))
        late = person.start(partial(edit, job.pk, priority=5, by="bob"))
        wait_for_blocked()
        other.commit() if ends else other.rollback()
        assert late.result(10) == ("priority",)
    job.refresh()
    said = ["by ada (arguments 1)", "by bob (priority)"]
    assert [error for _, _, error in acts(job)] == (said if ends else said[1:])
    assert (job.args, job.priority) == ([2] if ends else [1], 5)


def test_an_edit_beside_workers_that_claim_is_seen_by_the_run_or_refused(engine: Engine) -> None:
    for _round in range(10):
        job = nothing.enqueue(1)

        def person(job: Job = job) -> list[int]:
            try:
                edit(job.pk, payload=NEW)
            except StateConflict:
                return [1]
            return [2]

        def worker() -> list[int]:
            found = claim(engine)
            return list(json.loads(found[0].payload)["args"]) if found else []

        said, ran = together([person, worker])
        ran = ran or worker()
        assert said == ran == row(engine, job.pk)["payload"]["args"]


def test_of_two_requeues_with_other_arguments_at_once_one_is_made(engine: Engine) -> None:
    job = in_state(engine, "dead")

    def attempt(number: int) -> int:
        try:
            operate.requeue(job.pk, payload={"args": [number], "kwargs": {}})
        except StateConflict:
            return 0
        return number

    made = together([partial(attempt, number) for number in (2, 3, 4)])
    assert sorted(made)[:2] == [0, 0]
    assert job.refresh().args == [sum(made)]
    assert len(job.history) == 2


@on_postgresql
def test_workers_are_woken_by_what_is_run_now_and_not_by_what_is_parked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_window", notify._Window())
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 0.0)
    parked, later = in_state(engine, "scheduled"), in_state(engine, "scheduled", queue="mail")
    Job.objects.using(engine.alias).filter(pk=parked.pk).update(parked="type")
    with listening(engine) as heard:
        run_now(parked.pk)
        run_now(later.pk)
        assert heard.so_far() == ["mail"]
