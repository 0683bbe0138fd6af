"""Schedules that are changed, paused and resumed between their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import models

from django_jobs.models.schedule import Schedule
from django_jobs.schedules import survey
from tests.app.jobs import nothing
from tests.engines.common import alone, clock, sql
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
    since,
    slots,
    state,
    states,
    tick,
    wake,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine

pytestmark = [alone, pytest.mark.contract]


def again(engine: Engine, schedule: Schedule) -> Schedule:
    found: Schedule = Schedule.objects.using(engine.alias).get(pk=schedule.pk)
    return found


@pytest.mark.fast
def test_a_form_that_was_opened_before_a_tick_carries_nothing_back(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE, missed="all")
    opened = again(engine, schedule)
    assert opened.state.last_slot is None
    tick(engine)
    before = state(engine, schedule)
    opened.priority = 5
    opened.save()
    after = state(engine, schedule)
    assert (after.last_slot, after.next_run_at, after.wake_at) == (before.last_slot, before.next_run_at, before.wake_at)
    assert look(engine, schedule) == 0
    jobs(engine)[0].delete()
    assert look(engine, schedule) == 0


def past_save(engine: Engine, schedule: Schedule, **values: Any) -> None:
    """Update a row as SQL does."""
    models.QuerySet.update(Schedule.objects.using(engine.alias).filter(pk=schedule.pk), **values)


TIMES: list[dict[str, Any]] = [
    {"every": 2 * MINUTE},
    {"every": None, "expression": "* * * * *"},
    {"timezone": "Asia/Tokyo"},
    {"nonexistent": "skip"},
    {"ambiguous": "both"},
]


@pytest.mark.parametrize("values", TIMES, ids=lambda values: next(reversed(values)))
@pytest.mark.parametrize("by", ["save", "update", "SQL"])
def test_new_times_begin_when_they_are_given_and_a_slot_of_the_old_ones_does_not_fire(
    engine: Engine, values: dict[str, Any], by: str
) -> None:
    schedule = every(engine, MINUTE)
    tick(engine)
    since(engine, schedule, DAY, last_slot=clock(engine) - HOUR)
    before = clock(engine)
    if by == "save":
        for name, value in values.items():
            setattr(schedule, name, value)
        schedule.save()
    elif by == "update":
        assert Schedule.objects.using(engine.alias).filter(pk=schedule.pk).update(**values) == 1
    else:
        past_save(engine, schedule, **values)
    wake(engine)
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert found.changed_at >= before
    assert found.next_run_at == again(engine, schedule).next_slots(found.changed_at, 1)[0]
    assert found.missed == 0


@pytest.mark.parametrize("by", ["save", "update"])
def test_a_slot_that_comes_between_new_times_and_the_next_tick_is_not_lost(engine: Engine, by: str) -> None:
    schedule = every(engine, DAY)
    tick(engine)
    if by == "save":
        schedule.every = MINUTE
        schedule.save()
    else:
        Schedule.objects.using(engine.alias).filter(pk=schedule.pk).update(every=MINUTE)
    # As if that had been an hour ago, and no scheduler had run since.
    states(engine).update(changed_at=clock(engine) - HOUR)
    assert tick(engine).fired == 1
    assert state(engine, schedule).missed == 59


def test_new_times_never_bring_back_a_slot_that_was_passed(engine: Engine) -> None:
    schedule = late(engine, MINUTE, 10 * MINUTE, missed="all")
    tick(engine)
    ahead = clock(engine) + HOUR
    states(engine).update(last_slot=ahead)
    schedule.every = 2 * MINUTE
    schedule.save()
    assert look(engine, schedule) == 0
    assert state(engine, schedule).next_run_at > ahead


def save_others(schedule: Schedule) -> None:
    schedule.priority, schedule.payload = 9, {"args": [9], "kwargs": {}}
    schedule.save()


def update_others(schedule: Schedule) -> None:
    Schedule.objects.using(schedule._state.db).update(priority=9, payload={"args": [9], "kwargs": {}})


def update_to_the_same(schedule: Schedule) -> None:
    Schedule.objects.using(schedule._state.db).update(every=HOUR, timezone=schedule.timezone, enabled=True)


def resume_what_runs(schedule: Schedule) -> None:
    schedule.resume()


@pytest.mark.parametrize("edit", [save_others, update_others, update_to_the_same, resume_what_runs])
def test_an_edit_that_leaves_the_times_loses_no_slot_that_is_due(
    engine: Engine, edit: Callable[[Schedule], None]
) -> None:
    schedule = late(engine, HOUR, 3 * HOUR, missed="all")
    edit(schedule)
    assert tick(engine).fired == 3
    called = (9, [9]) if "others" in edit.__name__ else (0, [])
    assert [(job.priority, job.payload["args"]) for job in jobs(engine)] == [called] * 3


@pytest.mark.parametrize("by", ["methods", "save", "update", "SQL"])
def test_what_passed_while_it_was_paused_does_not_fire_when_it_is_resumed(engine: Engine, by: str) -> None:
    schedule = every(engine, MINUTE, missed="all")
    tick(engine)
    since(engine, schedule, DAY, last_slot=clock(engine) - HOUR)
    switch(engine, schedule, by, False)
    assert look(engine, schedule) == 0
    switch(engine, schedule, by, True)
    before = clock(engine)
    survey.adopt(engine.alias)  # as schedulers do from time to time
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert before - SECOND < found.changed_at
    assert found.next_run_at == schedule.next_slots(found.changed_at, 1)[0]
    states(engine).update(changed_at=found.changed_at - MINUTE)
    assert look(engine, schedule) == 1


def switch(engine: Engine, schedule: Schedule, by: str, enabled: bool) -> None:
    if by == "methods":
        schedule.resume() if enabled else schedule.pause()
    elif by == "save":
        schedule.enabled = enabled
        schedule.save()
    elif by == "update":
        assert Schedule.objects.using(engine.alias).update(enabled=enabled) == 1
    else:
        sql(engine, "UPDATE django_jobs_schedule SET enabled = %s", enabled)


def test_a_paused_schedule_is_not_looked_at(engine: Engine) -> None:
    schedule = every(engine, MINUTE)
    schedule.pause()
    assert state(engine, schedule).wake_at is None
    assert tick(engine) == (0, 0)
    survey.adopt(engine.alias)
    assert tick(engine) == (0, 0)


def test_a_pause_by_hand_that_no_scheduler_saw_leaves_the_slots_as_they_are(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    switch(engine, schedule, "SQL", False)
    switch(engine, schedule, "SQL", True)
    survey.adopt(engine.alias)
    assert tick(engine).fired == 1


def test_times_changed_by_hand_are_seen_by_a_scheduler_that_starts(engine: Engine) -> None:
    schedule = every(engine, HOUR)
    tick(engine)
    sql(engine, "UPDATE django_jobs_schedule SET expression = '* * * * *', every = NULL")
    assert tick(engine) == (0, 0)
    survey.recompute_stale(engine.alias)
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert found.next_run_at - found.looked_at <= MINUTE
    survey.recompute_stale(engine.alias)
    assert tick(engine) == (0, 0)


# What save() does, for rows that it never saw.


def insert(engine: Engine, name: str, interval: Any, expression: str) -> Schedule:
    sql(
        engine,
        "INSERT INTO django_jobs_schedule (name, type, payload, expression, every, timezone, nonexistent, ambiguous, "
        "missed, missed_limit, overlap, queue, enabled) VALUES "
        f"(%s, %s, '{{\"args\": [], \"kwargs\": {{}}}}', %s, {interval}, 'UTC', 'after_gap', 'first', 'latest', 100, "
        "'allow', '', true)",
        name,
        nothing.name,
        expression,
    )
    found: Schedule = Schedule.objects.using(engine.alias).get(name=name)
    return found


def test_a_schedule_inserted_by_sql_begins_when_a_scheduler_sees_it_and_counts_from_there(engine: Engine) -> None:
    interval = "interval '60 s'" if engine.name == "postgresql" else "60000000"
    before = clock(engine).replace(microsecond=0)
    interval_one = insert(engine, "by SQL", interval, "")
    cron = insert(engine, "cron by SQL", "NULL", "* * * * *")
    survey.adopt(engine.alias)
    assert tick(engine) == (2, 0)
    anchor = again(engine, interval_one).anchor
    assert anchor is not None
    assert before <= anchor <= clock(engine)
    assert anchor.microsecond == 0
    assert state(engine, interval_one).next_run_at == anchor + MINUTE
    assert state(engine, cron).next_run_at.second == 0
    survey.adopt(engine.alias)
    assert tick(engine) == (0, 0)


def test_an_interval_that_counts_from_nowhere_has_slots_that_stay_where_they_are(engine: Engine) -> None:
    schedule = every(engine, HOUR, overlap="queue")
    tick(engine)
    sql(engine, "UPDATE django_jobs_schedule SET anchor = NULL")
    look(engine, schedule)
    first = state(engine, schedule)
    states(engine).update(changed_at=first.changed_at - 90 * SECOND)
    second_at = []
    for _ in range(3):
        assert look(engine, schedule) == 0
        second_at.append(state(engine, schedule).next_run_at)
    assert len(set(second_at)) == 1
    assert first.next_run_at - second_at[0] == 90 * SECOND


def test_what_an_interval_counts_from_is_kept_when_it_is_not_given_again(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    copy = again(engine, schedule)
    copy.anchor = None
    copy.save()
    assert again(engine, schedule).anchor == schedule.anchor
    assert tick(engine).fired == 1


def test_another_name_keeps_the_slots_that_were_passed(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    tick(engine)
    schedule.name = "another"
    schedule.save()
    assert look(engine, schedule) == 0
    assert len(slots(engine)) == 1


def test_a_deleted_schedule_leaves_its_jobs_and_no_state(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    tick(engine)
    schedule.delete()
    assert not states(engine).exists()
    assert len(jobs(engine)) == 1
    again_made = made(engine, name=schedule.name, every=HOUR, anchor=schedule.anchor)
    since(engine, again_made, MINUTE)
    assert tick(engine).fired == 1  # its key is there
    assert len(jobs(engine)) == 1
