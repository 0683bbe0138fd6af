"""Slots that come while the job of an earlier one waits or runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import pause
from django_jobs.engines.values import Done
from django_jobs.models import Job
from django_jobs.models.clock import Clock
from django_jobs.queue import operate
from django_jobs.schedules import step
from tests.app.jobs import nothing
from tests.archive.common import go_round
from tests.engines.common import alone, claim, clock, settled
from tests.schedules.common import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    STEPS,
    end_jobs,
    every,
    jobs,
    look,
    made,
    since,
    slots,
    state,
    states,
    tick,
    tick_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine
    from django_jobs.models.schedule import Schedule

pytestmark = [alone, pytest.mark.contract]


def first_made(engine: Engine, overlap: str, **values: Any) -> Schedule:
    """Return a schedule each minute whose slot of a minute ago has its job, and whose next one has come."""
    schedule = every(engine, MINUTE, slot_ago=MINUTE + SECOND, overlap=overlap, **values)
    last = slot(schedule, 1)
    since(engine, schedule, DAY, last_slot=last)
    job = nothing.enqueue()
    Job.objects.using(engine.alias).filter(pk=job.pk).update(slot=last, schedule=schedule.name)
    states(engine).filter(pk=schedule.pk).update(last_job=job.pk)
    return schedule


def slot(schedule: Schedule, back: int) -> datetime:
    """Return the slot that came a second ago, or one `back` before it."""
    assert schedule.anchor is not None
    return schedule.next_slots(schedule.anchor, STEPS + 1 - back)[-1]


def leave(engine: Engine) -> None:
    pass


def start(engine: Engine) -> None:
    assert claim(engine)


def start_and_cancel(engine: Engine) -> None:
    (claimed,) = claim(engine)
    assert operate.cancel(claimed.id) == "asked"


def pause_queue(engine: Engine) -> None:
    pause(queue="default")


def retry(engine: Engine) -> None:
    (claimed,) = claim(engine)
    engine.settle([settled(claimed.run, delay=3600.0, counts="attempt", error="no")], 10)


def finish(engine: Engine) -> None:
    (claimed,) = claim(engine)
    engine.complete([Done(claimed.run, None)])


def die(engine: Engine) -> None:
    (claimed,) = claim(engine)
    engine.settle([settled(claimed.run, status="dead", counts="attempt", error="no")], 10)


def cancel(engine: Engine) -> None:
    assert operate.cancel(jobs(engine)[0].pk) == "cancelled"


def delete(engine: Engine) -> None:
    Job.objects.using(engine.alias).all().delete()


def move_to_archive(engine: Engine) -> None:
    finish(engine)
    long_ago = Clock() - 2 * DAY
    Job.objects.using(engine.alias).update(finished_at=long_ago, created_at=long_ago)
    assert go_round(engine).archived == 1


GOES_ON = [leave, start, start_and_cancel, pause_queue, retry]
IS_OVER = [finish, die, cancel, delete, move_to_archive]


@pytest.mark.parametrize("act", [*GOES_ON, *IS_OVER])
def test_a_slot_is_skipped_exactly_while_the_run_before_it_waits_or_runs(
    engine: Engine, act: Callable[[Engine], None]
) -> None:
    schedule = first_made(engine, "skip")
    act(engine)
    assert tick(engine).fired == (act in IS_OVER)
    found = state(engine, schedule)
    assert found.skipped == (act in GOES_ON)
    assert (found.last_slot, found.missed, found.pending_slot) == (slot(schedule, 0), 0, None)


@pytest.mark.parametrize("act", [*GOES_ON, *IS_OVER])
def test_a_slot_waits_exactly_while_the_run_before_it_waits_or_runs(
    engine: Engine, act: Callable[[Engine], None]
) -> None:
    schedule = first_made(engine, "queue")
    act(engine)
    assert tick(engine).fired == (act in IS_OVER)
    found = state(engine, schedule)
    assert (found.last_slot, found.skipped) == (slot(schedule, 0), 0)
    assert found.pending_slot == (slot(schedule, 0) if act in GOES_ON else None)


@pytest.mark.fast
@pytest.mark.parametrize("act", IS_OVER)
def test_a_slot_that_waits_gets_its_job_from_the_tick_that_sees_the_run_before_it_ended(
    engine: Engine, act: Callable[[Engine], None]
) -> None:
    schedule = first_made(engine, "queue", spread=50 * SECOND)
    tick(engine)
    found = state(engine, schedule)
    assert (found.wake_at - found.looked_at).total_seconds() == step.PENDING_SECONDS
    assert look(engine, schedule) == 0
    act(engine)
    before = clock(engine)
    assert look(engine, schedule) == 1
    job = jobs(engine)[-1]
    assert job.slot == slot(schedule, 0)
    assert before <= job.run_at <= clock(engine)
    found = state(engine, schedule)
    assert (found.pending_slot, found.last_job, found.wake_at) == (None, job.pk, found.next_run_at)
    delete(engine)
    assert look(engine, schedule) == 0


def test_of_many_slots_that_come_meanwhile_the_latest_waits_and_the_others_are_counted(engine: Engine) -> None:
    schedule = first_made(engine, "queue", missed="all", missed_grace=5 * MINUTE)
    since(engine, schedule, DAY, last_slot=slot(schedule, 4))
    tick(engine)
    assert (state(engine, schedule).pending_slot, state(engine, schedule).skipped) == (slot(schedule, 0), 3)
    since(engine, schedule, DAY, last_slot=slot(schedule, 2), pending_slot=slot(schedule, 2))
    tick(engine)
    assert (state(engine, schedule).pending_slot, state(engine, schedule).skipped) == (slot(schedule, 0), 5)
    finish(engine)
    tick_all(engine)
    look(engine, schedule)
    assert slots(engine)[-1] == slot(schedule, 0)
    assert len(slots(engine)) == 2


@pytest.mark.parametrize("missed", ["latest", "all"])
def test_what_was_missed_while_runs_may_not_overlap_is_made_up_for_once(engine: Engine, missed: str) -> None:
    options: dict[str, Any] = {"slot_ago": MINUTE + SECOND, "missed": missed, "missed_grace": 0}
    queued = every(engine, MINUTE, overlap="queue", **options)
    skipped = every(engine, MINUTE, overlap="skip", **options)
    for schedule in (queued, skipped):
        since(engine, schedule, HOUR)
    tick(engine)
    assert slots(engine, queued) == [slot(queued, 0)]
    assert len(slots(engine, skipped)) == 1
    for schedule in (queued, skipped):
        found = state(engine, schedule)
        assert found.fired + found.skipped + found.dropped == 60


def test_runs_overlap_where_they_may(engine: Engine) -> None:
    schedule = first_made(engine, "allow")
    start(engine)
    assert tick(engine).fired == 1
    assert state(engine, schedule).skipped == 0


def test_a_job_made_by_hand_keeps_no_slot_waiting(engine: Engine) -> None:
    schedule = first_made(engine, "skip")
    finish(engine)
    schedule.run_now()
    assert tick(engine).fired == 1


def test_a_slot_that_waits_goes_when_its_schedule_no_longer_makes_them_wait(engine: Engine) -> None:
    schedule = first_made(engine, "queue")
    tick(engine)
    schedule.overlap = "allow"
    schedule.save()
    assert look(engine, schedule) == 1
    assert slots(engine)[-1] == slot(schedule, 0)


def test_a_slot_that_waits_is_forgotten_by_a_pause_and_by_new_times(engine: Engine) -> None:
    for act in ("pause", "times"):
        schedule = first_made(engine, "queue")
        tick(engine)
        assert state(engine, schedule).pending_slot
        if act == "pause":
            schedule.pause()
            schedule.resume()
        else:
            schedule.every = HOUR
            schedule.save()
        end_jobs(engine)
        assert look(engine, schedule) == 0


def test_a_slot_that_waits_does_not_stop_the_clock_of_an_expression(engine: Engine) -> None:
    schedule = made(engine, expression="* * * * *", overlap="queue")
    since(engine, schedule, 3 * MINUTE)
    tick(engine)
    since(engine, schedule, 3 * MINUTE, last_slot=state(engine, schedule).last_slot - MINUTE)
    tick(engine)
    found = state(engine, schedule)
    assert found.pending_slot == found.last_slot
    assert found.wake_at <= found.next_run_at
