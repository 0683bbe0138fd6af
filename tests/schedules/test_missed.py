"""Slots that no scheduler came to in time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.models import Stat
from django_jobs.models.clock import Clock
from tests.app.jobs import nothing
from tests.engines.common import alone, clock
from tests.schedules.common import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    every,
    jobs,
    late,
    look,
    made,
    planned,
    since,
    slots,
    state,
    tick,
    tick_all,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = [alone, pytest.mark.contract]


@pytest.mark.fast
@pytest.mark.parametrize(("missed", "jobs_made"), [("skip", 0), ("latest", 1), ("all", 5)])
def test_after_three_days_the_newest_run_the_oldest_first_and_each_knows_its_slot(
    engine: Engine, missed: str, jobs_made: int
) -> None:
    schedule = every(engine, 5 * MINUTE, slot_ago=2 * MINUTE, missed=missed, missed_limit=5)
    now = since(engine, schedule, 3 * DAY)
    due = planned(schedule, now, 3 * DAY)
    assert tick_all(engine) == 1
    assert slots(engine) == due[len(due) - jobs_made :]
    assert all(job.run_at >= now for job in jobs(engine))
    found = state(engine, schedule)
    assert (found.fired, found.missed, found.dropped) == (jobs_made, 864, 864 - jobs_made)
    assert (found.last_slot, found.next_run_at) == (due[-1], due[-1] + 5 * MINUTE)


def test_missed_slots_are_counted_by_the_queue_and_type_of_their_jobs(engine: Engine) -> None:
    every(engine, HOUR)  # in time
    for queue, missed in (("mail", "skip"), ("mail", "latest"), ("other", "all")):
        since(engine, every(engine, 5 * MINUTE, slot_ago=2 * MINUTE, queue=queue, missed=missed), HOUR)
    before = clock(engine)
    tick_all(engine)
    found = Stat.objects.using(engine.alias).order_by("queue")
    assert [(row.queue, row.type, row.slots_missed, row.seconds) for row in found] == [
        ("mail", nothing.name, 24, 60),
        ("other", nothing.name, 12, 60),
    ]
    minutes = {moment.replace(second=0, microsecond=0) for moment in (before, clock(engine))}
    assert {row.minute for row in found} <= minutes


def test_the_minutes_of_three_days_are_made_up_for_in_one_tick(engine: Engine) -> None:
    schedule = made(engine, expression="* * * * *", timezone="Europe/Berlin", missed="all", missed_limit=5)
    now = since(engine, schedule, 3 * DAY)
    assert tick(engine).fired == 5
    found = state(engine, schedule)
    assert found.fired + found.dropped in (4320, 4321)
    assert 0 < (found.next_run_at - now).total_seconds() <= 60


def test_missed_slots_that_are_older_than_the_window_are_dropped_and_counted(engine: Engine) -> None:
    schedule = late(engine, MINUTE, HOUR, missed="all", missed_window=10 * MINUTE, missed_grace=0)
    now = clock(engine)
    tick(engine)
    assert slots(engine) == planned(schedule, now, 10 * MINUTE)
    found = state(engine, schedule)
    assert (found.missed, found.dropped) == (60, 50)


def test_a_schedules_own_grace_wins_over_the_setting(engine: Engine, settings: Any) -> None:
    def dropped(grace: timedelta | None) -> int:
        schedule = late(engine, HOUR, 3 * HOUR, missed="skip", missed_grace=grace)
        tick(engine)
        return int(state(engine, schedule).dropped)

    assert [dropped(grace) for grace in (None, 0 * SECOND, HOUR, 2 * HOUR)] == [2, 3, 2, 1]
    settings.DJANGO_JOBS = {"MISSED_GRACE": 2 * HOUR}
    assert [dropped(grace) for grace in (None, 0 * SECOND, HOUR)] == [1, 3, 2]


@pytest.mark.parametrize("missed", ["skip", "latest", "all"])
def test_a_slot_that_is_late_by_less_than_the_grace_fires_by_every_policy(engine: Engine, missed: str) -> None:
    schedule = every(engine, HOUR, slot_ago=50 * SECOND, missed=missed)
    since(engine, schedule, MINUTE)
    tick(engine)
    assert len(slots(engine)) == 1
    assert state(engine, schedule).missed == 0


def test_what_was_missed_is_dealt_with_once(engine: Engine) -> None:
    schedule = late(engine, HOUR, 3 * DAY)
    tick(engine)
    before = state(engine, schedule)
    for _ in range(3):
        assert look(engine, schedule) == 0
    after = state(engine, schedule)
    assert (after.missed, after.dropped, after.fired) == (before.missed, before.dropped, before.fired)


def test_missed_slots_are_made_up_for_in_the_order_of_time_beside_those_in_time(engine: Engine) -> None:
    schedule = every(engine, 40 * SECOND, slot_ago=2 * SECOND, missed="all")
    now = since(engine, schedule, 10 * MINUTE)
    tick(engine)
    assert slots(engine) == planned(schedule, now, 10 * MINUTE)
    in_time = [job for job in jobs(engine) if job.run_at == job.slot]
    assert [job.slot for job in in_time] == slots(engine)[-2:]
    found = state(engine, schedule)
    assert (found.missed, found.dropped, found.fired) == (13, 0, 15)


def test_a_long_absence_of_a_schedule_each_second_is_counted(engine: Engine) -> None:
    schedule = every(engine, SECOND, missed="latest", missed_grace=0)
    anchor = clock(engine).replace(microsecond=0) - 40 * DAY
    type(schedule).objects.using(engine.alias).filter(pk=schedule.pk).update(anchor=anchor)
    since(engine, schedule, 30 * DAY, wake_at=Clock())
    assert tick(engine).fired <= 2
    found = state(engine, schedule)
    assert abs(found.dropped - 30 * 86400) <= 3
