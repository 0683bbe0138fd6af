"""Rows and tables that others hold, and rows that cannot be read: what is nobody's fault breaks no schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_jobs.models import Schedule, ScheduleState
from django_jobs.schedules import status, survey, sync
from django_jobs.schedules import tick as ticks
from tests.engines.common import alone, beside_others, clock, on_postgresql, sql
from tests.releases import release
from tests.schedules.common import DAY, HOUR, MINUTE, TYPES, every, jobs, late, made, since, state, states, tick, wake
from tests.threads import session, together

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = pytest.mark.contract


@on_postgresql
@beside_others
def test_a_table_that_somebody_holds_breaks_no_schedule_and_is_told_after_two_of_them(
    engine: Engine, settings: Any
) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.2}
    schedules = [late(engine, HOUR, MINUTE) for _ in range(5)]
    before = list(states(engine).order_by("pk").values())
    with session(engine.alias) as other:
        other.begin()
        other.sql("LOCK TABLE django_jobs_job IN EXCLUSIVE MODE")
        with pytest.raises(ticks.Held, match="is held by another transaction"):
            tick(engine)
        assert list(states(engine).order_by("pk").values()) == before
        other.rollback()
    assert tick(engine) == (5, 5)
    assert {job.schedule for job in jobs(engine)} == {schedule.name for schedule in schedules}


@on_postgresql
@beside_others
def test_a_row_of_the_code_that_somebody_holds_does_not_delay_a_scheduler_that_would_not_change_it(
    engine: Engine,
) -> None:
    with release(a={"every": 60}), session(engine.alias) as other:
        sync.sync(engine.alias)
        other.begin()
        other.sql("SELECT * FROM django_jobs_schedule FOR UPDATE")
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SET lock_timeout = 1")
        try:
            sync.sync(engine.alias)
        finally:
            with connections[engine.alias].cursor() as cursor:
                cursor.execute("RESET lock_timeout")
            other.rollback()
    assert Schedule.objects.using(engine.alias).count() == 1


UNREADABLE = {
    "postgresql": ["last_fired_at = 'infinity'", "changed_at = '-infinity'", "wake_at = '-infinity'"],
    "sqlite": ["fired = 'abc'", "wake_at = 5", "changed_at = '2026-99-99'"],
}


@alone
@pytest.mark.parametrize("number", range(3))
def test_a_state_that_cannot_be_read_keeps_no_other_from_firing_and_says_so(engine: Engine, number: int) -> None:
    broken, *others = (late(engine, HOUR, MINUTE) for _ in range(3))
    sql(
        engine,
        f"UPDATE django_jobs_schedulestate SET {UNREADABLE[engine.name][number]} WHERE schedule_id = %s",
        broken.pk,
    )
    assert ticks.due_in(engine, TYPES) == 0
    tick(engine)
    assert {job.schedule for job in jobs(engine)} >= {schedule.name for schedule in others}
    found = states(engine).filter(pk=broken.pk)
    if "wake_at" not in UNREADABLE[engine.name][number]:  # which the tick itself puts right
        assert found.exclude(error="").exists()
    assert ticks.due_in(engine, TYPES) != 0


@alone
def test_a_row_that_cannot_be_read_is_paused_and_deleted_by_the_orm(engine: Engine) -> None:
    broken, other = made(engine), made(engine)
    wrong = {"postgresql": "anchor = 'infinity'", "sqlite": "every = 'abc'"}[engine.name]
    sql(engine, f"UPDATE django_jobs_schedule SET {wrong} WHERE id = %s", broken.pk)
    rows = Schedule.objects.using(engine.alias)
    assert rows.all().update(enabled=False) == 2
    assert list(states(engine).values_list("wake_at", flat=True)) == [None, None]
    assert rows.filter(pk=broken.pk).delete() == (1, {"django_jobs.Schedule": 1})
    assert list(rows.all()) == [other]
    assert list(states(engine).values_list("pk", flat=True)) == [other.pk]


@alone
def test_an_interval_without_an_anchor_that_cannot_be_read_stops_no_scheduler(engine: Engine) -> None:
    broken, other = made(engine), made(engine)
    sql(engine, "UPDATE django_jobs_schedule SET anchor = NULL")
    wrong = {"postgresql": "expression = 'x', every = NULL", "sqlite": "every = 'abc'"}[engine.name]
    sql(engine, f"UPDATE django_jobs_schedule SET {wrong} WHERE id = %s", broken.pk)
    survey.adopt(engine.alias)
    assert Schedule.objects.using(engine.alias).get(pk=other.pk).anchor is not None


@on_postgresql
@beside_others
def test_deleting_and_editing_the_same_schedules_at_once_is_no_deadlock(engine: Engine) -> None:
    rows = Schedule.objects.using(engine.alias)
    for _ in range(10):
        schedules = [made(engine) for _ in range(6)]
        chosen = rows.filter(pk__in=[schedule.pk for schedule in schedules])
        together([lambda: chosen.update(every=HOUR), lambda: chosen.delete(), lambda: chosen.update(enabled=False)])  # noqa: B023
    assert rows.count() == 0


@alone
def test_what_is_due_now_is_not_behind_all_that_was_edited(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "BATCH", 3)
    edited = [made(engine) for _ in range(9)]
    now = clock(engine)
    states(engine).update(wake_at=now - MINUTE)
    due = late(engine, HOUR, MINUTE)
    assert ticks.tick(engine, TYPES, "host:1", newest=True).fired == 1
    assert [job.schedule for job in jobs(engine)] == [due.name]
    assert states(engine).filter(pk__in=[schedule.pk for schedule in edited], wake_at__lte=now).count() == 7


@alone
def test_a_spread_that_is_longer_than_the_gap_breaks_the_schedule_in_the_tick_as_well(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    value = {"postgresql": "'9 years'", "sqlite": 9 * 365 * 86400 * 10**6}[engine.name]
    sql(engine, f"UPDATE django_jobs_schedule SET spread = {value}")
    assert tick(engine) == (1, 0)
    assert "spread is" in state(engine, schedule).error


@alone
def test_one_whose_last_slot_was_put_to_the_end_of_the_calendar_is_shown_as_broken(engine: Engine) -> None:
    schedule = every(engine, HOUR)
    since(
        engine,
        schedule,
        DAY,
        last_slot=clock(engine).replace(year=9999, month=12, day=31, hour=23, minute=59, second=59),
    )
    tick(engine)
    found = Schedule.objects.using(engine.alias).select_related("state").get()
    assert status.condition(found, clock(engine)) == (
        "broken",
        "No slot of it comes any more after the last one that its state names.",
    )


@alone
def test_an_edit_of_anything_has_broken_ones_looked_at_again(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    sql(engine, "UPDATE django_jobs_schedule SET payload = '5'")
    tick(engine)
    assert state(engine, schedule).wake_at > clock(engine)
    Schedule.objects.using(engine.alias).update(payload={"args": [], "kwargs": {}})
    assert tick(engine) == (1, 1)
    wake(engine)
    assert ScheduleState.objects.using(engine.alias).get().error == ""
