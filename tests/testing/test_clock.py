"""Moving the clock of the jobs' database for a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.functions import Now

from django_jobs import JobsError, schedule
from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models import Job, Schedule
from django_jobs.models.clock import database_now
from django_jobs.schedules import code
from django_jobs.testing import advance, reset_clock, run_jobs
from tests.app.models import Effect
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, committed, told

HOUR = timedelta(hours=1)
A_MOMENT = timedelta(seconds=5)


def moved(engine: Engine) -> timedelta:
    """Return by how much the database's clock is ahead of this host's, which is the database's too."""
    found = database_now(engine.alias) - datetime.now(UTC)
    return timedelta(hours=round(found / HOUR))


def test_whatever_asks_the_database_for_the_time_is_told_the_later_one(both: bool, engine: Engine) -> None:
    assert abs(advance(HOUR) - datetime.now(UTC) - HOUR) < A_MOMENT
    advance(timedelta(0))
    assert advance(2 * HOUR) - datetime.now(UTC) > 3 * HOUR - A_MOMENT
    job = jobs.leave.using(delay=HOUR).enqueue("x")
    assert abs(job.refresh().run_at - datetime.now(UTC) - 4 * HOUR) < A_MOMENT
    Effect.objects.using(engine.alias).create(key="y")
    (now,) = Effect.objects.using(engine.alias).annotate(now=Now()).values_list("now", flat=True)
    assert abs(now - datetime.now(UTC) - 3 * HOUR) < A_MOMENT
    run_jobs(ahead=HOUR)
    assert job.refresh().status == "done"
    assert job.finished_at is not None
    assert job.finished_at - datetime.now(UTC) > 4 * HOUR - A_MOMENT


@alone
def test_the_clock_can_be_set_back(engine: Engine) -> None:
    advance(5 * HOUR)
    reset_clock()
    assert moved(engine) == timedelta(0)
    reset_clock()


@alone
def test_the_clock_of_a_testcase_is_right_again_in_the_next_one(engine: Engine) -> None:
    outer: Any = transaction.atomic(using=engine.alias)
    outer._from_testcase = True
    with outer:
        advance(HOUR)
        inner: Any = transaction.atomic(using=engine.alias)
        inner._from_testcase = True
        inner.__enter__()
        advance(HOUR)
        transaction.set_rollback(True, using=engine.alias)
        inner.__exit__(None, None, None)
        assert moved(engine) == HOUR
        transaction.set_rollback(True, using=engine.alias)
    assert moved(engine) == timedelta(0)


@committed
def test_the_clock_stays_moved_on_a_connection_that_is_made_anew(engine: Engine) -> None:
    advance(HOUR)
    connections[engine.alias].close()
    assert moved(engine) == HOUR
    reset_clock()


@alone
def test_what_cannot_be_meant_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidJobType, match="give a timedelta"):
        advance(60)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="does not go back"):
        advance(-HOUR)
    with transaction.atomic(using=engine.alias), pytest.raises(JobsError, match="inside a transaction"):
        advance(HOUR)


@alone
def test_schedules_fire_as_the_clock_comes_to_their_slots(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_schedules", {})
    schedule(every=6 * HOUR, name="six-hourly", args=["x"])(jobs.step)
    assert run_jobs(schedules=True) == []
    ran = run_jobs(schedules=True, ahead=timedelta(hours=13))
    assert told(ran) == [("step", "done", 1)] * 2
    slots = list(Job.objects.using(engine.alias).order_by("pk").values_list("slot", flat=True))
    assert slots[1] - slots[0] == 6 * HOUR
    assert run_jobs(ahead=timedelta(hours=13)) == []
    # Nobody looked for so long: its `missed` says what becomes of the slots.
    assert len(run_jobs(schedules=True)) == 1
    assert Schedule.objects.using(engine.alias).count() == 1
