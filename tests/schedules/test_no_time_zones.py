"""Schedules of a project with USE_TZ = False."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from django_jobs.models import Job
from django_jobs.models.clock import database_now, from_row
from django_jobs.schedules import survey
from django_jobs.schedules import tick as ticks
from tests.engines.common import alone, clock
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND, TYPES, made, slots, state, states, tick, wake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine

pytestmark = [alone, pytest.mark.contract]
ZONE = "Asia/Kathmandu"


@pytest.fixture
def without(engine: Engine, settings: Any) -> Iterator[Engine]:
    settings.USE_TZ, settings.TIME_ZONE = False, ZONE
    yield engine
    settings.USE_TZ, settings.TIME_ZONE = True, "UTC"


@pytest.mark.fast
def test_a_schedule_ticks_right_where_the_project_has_no_time_zones(without: Engine, settings: Any) -> None:
    engine = without
    cron = made(engine, expression="* * * * *", missed="all", missed_grace=0)
    interval = made(engine, every=MINUTE, missed="all", missed_grace=0)
    assert cron.timezone == ZONE
    assert tick(engine) == (2, 0)
    settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    now = clock(engine)
    states(engine).update(changed_at=now - 10 * MINUTE)
    type(interval).objects.using(engine.alias).filter(pk=interval.pk).update(anchor=state_anchor(now))
    states(engine).update(changed_at=now - 10 * MINUTE, timing="")
    wake(engine)
    settings.USE_TZ, settings.TIME_ZONE = False, ZONE
    assert tick(engine).fired in (20, 21)
    wake(engine)
    assert tick(engine).fired == 0
    assert 0 < (ticks.due_in(engine, TYPES) or 0) <= 60
    before = list(states(engine).order_by("pk").values_list("wake_at", "changed_at"))
    survey.recompute_stale(engine.alias)
    survey.adopt(engine.alias)
    assert list(states(engine).order_by("pk").values_list("wake_at", "changed_at")) == before
    settings.USE_TZ, settings.TIME_ZONE = True, "UTC"

    made_slots = slots(engine, cron)
    assert made_slots == sorted(set(made_slots))
    assert len(made_slots) in (10, 11)
    assert all(now - 10 * MINUTE < slot <= clock(engine) and slot.second == 0 for slot in made_slots)
    assert all(abs(job.run_at - now) < MINUTE for job in Job.objects.using(engine.alias).all())
    for schedule in (cron, interval):
        found = state(engine, schedule)
        assert found.last_slot == slots(engine, schedule)[-1]
        assert found.next_run_at == found.wake_at == found.last_slot + MINUTE
        assert abs(found.looked_at - now) < MINUTE
        assert found.error == ""
    assert [slot - state_anchor(now) for slot in slots(engine, interval)] == [
        DAY - number * MINUTE for number in range(9, -1, -1)
    ]


def state_anchor(now: datetime) -> datetime:
    return now.replace(microsecond=0) - DAY


def test_a_slot_in_time_is_due_at_the_slot_and_an_edit_begins_now(without: Engine, settings: Any) -> None:
    engine = without
    schedule = made(engine, every=2)
    settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    now = clock(engine)
    type(schedule).objects.using(engine.alias).filter(pk=schedule.pk).update(anchor=now - HOUR, every=HOUR)
    states(engine).update(changed_at=now - MINUTE, timing="")
    settings.USE_TZ, settings.TIME_ZONE = False, ZONE
    assert tick(engine).fired == 1
    schedule.refresh_from_db()
    schedule.every = 2 * MINUTE
    schedule.save()
    assert tick(engine) == (1, 0)
    assert 118 < (ticks.due_in(engine, TYPES) or 0) <= 120
    settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    (job,) = Job.objects.using(engine.alias).all()
    assert job.slot == job.run_at == now.replace(microsecond=job.slot.microsecond)
    assert job.idempotency_key == f"schedule:{schedule.name}:{job.slot.isoformat().removesuffix('+00:00')}Z"
    assert abs(state(engine, schedule).changed_at - now) < 30 * SECOND
    assert timedelta(0) < state(engine, schedule).next_run_at - now <= 2 * MINUTE


@pytest.mark.parametrize("days", [91, 182, 273])
def test_the_time_until_a_slot_does_not_depend_on_clock_changes_in_between(
    engine: Engine, settings: Any, days: int
) -> None:
    made(engine, every=HOUR)
    states(engine).update(wake_at=clock(engine) + days * DAY)
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    try:
        found = ticks.due_in(engine, TYPES)
    finally:
        settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    assert found is not None
    assert 0 <= days * 86400 - found < 60


@pytest.mark.fast
def test_times_of_rows_are_the_projects_whichever_zone_a_request_has_activated(without: Engine) -> None:
    engine = without
    schedule = made(engine, every=HOUR)
    with timezone.override("America/New_York"):
        changed_at = from_row(state(engine, schedule).changed_at, engine.alias)
        assert tick(engine) == (1, 0)
        found = state(engine, schedule)
        due_in = ticks.due_in(engine, TYPES)
    now = database_now(engine.alias)
    assert abs(now - changed_at) < MINUTE
    assert timedelta(0) < from_row(found.next_run_at, engine.alias) - now <= HOUR
    assert 3500 < (due_in or 0) <= 3600
