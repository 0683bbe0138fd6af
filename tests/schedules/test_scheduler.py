"""The thread that ticks: when it looks, and what it does not wait for."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.conf import conf
from django_jobs.models import Schedule, ScheduleState
from django_jobs.schedules import tick as ticks
from django_jobs.workers import scheduler as schedulers
from django_jobs.workers.outage import Outage
from django_jobs.workers.scheduler import HELD_SECONDS, LONGEST_WAIT, REFUSED_SECONDS, STUCK_SECONDS, Scheduler
from tests.app.jobs import nothing
from tests.engines.common import MIGRATE, beside_others, on_postgresql, on_sqlite, sql
from tests.harness import wait_for
from tests.schedules.common import HOUR, MINUTE, SECOND, every, jobs, late, made, since, slots, state, states
from tests.schedules.test_broken import UNREADABLE
from tests.threads import Session, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine

pytestmark = [beside_others, pytest.mark.contract]


@pytest.fixture
def scheduler(engine: Engine) -> Scheduler:
    return Scheduler(engine, conf(), Outage("scheduler", conf().lease))


@pytest.fixture
def thread(engine: Engine) -> Iterator[Session]:
    """Return a thread that takes the scheduler's steps, as its own does, with a connection of its own."""
    with session(engine.alias) as found:
        yield found


def test_each_second_has_its_job_soon_and_none_has_two(engine: Engine, scheduler: Scheduler) -> None:
    schedule = made(engine, every=SECOND)
    scheduler.start()
    try:
        wait_for(lambda: len(slots(engine, schedule)) >= 3)
    finally:
        assert scheduler.end(10)
    found = slots(engine, schedule)
    assert all(after - before == SECOND for before, after in pairwise(found))
    late_by = sorted(job.created_at - job.slot for job in jobs(engine, schedule) if job.slot)
    assert late_by[0] >= 0 * SECOND
    assert late_by[len(late_by) // 2] < SECOND
    assert scheduler.ready.is_set()


def test_it_may_be_ended_and_started_again(engine: Engine, scheduler: Scheduler) -> None:
    schedule = made(engine, every=SECOND)
    for count in (1, 2):
        scheduler.start()
        try:
            wait_for(lambda: len(slots(engine, schedule)) >= count)  # noqa: B023
        finally:
            assert scheduler.end(10)


def test_it_sleeps_until_the_next_slot_and_no_longer_than_an_edit_may_wait(
    engine: Engine, scheduler: Scheduler, thread: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert thread.do(scheduler._step) == LONGEST_WAIT
    every(engine, HOUR, slot_ago=HOUR - 40 * SECOND)
    assert thread.do(scheduler._step) == 0  # it is new
    assert thread.do(scheduler._step) == LONGEST_WAIT
    monkeypatch.setattr(schedulers, "LONGEST_WAIT", 60.0)
    assert 0 < thread.do(scheduler._step) <= 40


@on_postgresql
def test_what_another_scheduler_holds_is_looked_at_again_a_moment_later(
    engine: Engine, scheduler: Scheduler, thread: Session
) -> None:
    schedule = late(engine, HOUR, MINUTE)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_schedulestate WHERE schedule_id = %s FOR UPDATE", schedule.pk)
        assert HELD_SECONDS <= thread.do(scheduler._step) <= 2 * HELD_SECONDS
        other.rollback()
    assert thread.do(scheduler._step) == 0
    assert len(slots(engine, schedule)) == 1


@on_sqlite
def test_a_look_at_nothing_does_not_wait_for_who_writes_the_file(
    engine: Engine, scheduler: Scheduler, thread: Session
) -> None:
    made(engine, every=HOUR)
    while thread.do(scheduler._step) == 0:
        pass
    with session(engine.alias) as writer:
        writer.sql("BEGIN IMMEDIATE")
        started = time.monotonic()
        assert thread.do(scheduler._step) == LONGEST_WAIT
        assert time.monotonic() - started < 2
        writer.sql("ROLLBACK")


def test_what_sql_stored_or_enabled_is_found_from_time_to_time(
    engine: Engine, scheduler: Scheduler, thread: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = every(engine, HOUR, enabled=False)
    assert thread.do(scheduler._step) == LONGEST_WAIT
    found = Schedule.objects.using(engine.alias).bulk_create([Schedule(name="b", type=nothing.name, every=HOUR)])
    states(engine).filter(pk=found[0].pk).delete()
    sql(engine, "UPDATE django_jobs_schedule SET enabled = true")
    assert thread.do(scheduler._step) == LONGEST_WAIT
    monkeypatch.setattr(schedulers, "SURVEY_SECONDS", -1.0)
    thread.do(scheduler._step)
    for schedule in (paused, found[0]):
        assert state(engine, schedule).next_run_at is not None


def test_a_row_that_cannot_be_read_does_not_keep_a_scheduler_from_starting(
    engine: Engine, scheduler: Scheduler, thread: Session
) -> None:
    broken, good = late(engine, HOUR, MINUTE), late(engine, HOUR, MINUTE)
    sql(engine, f"UPDATE django_jobs_schedule SET {UNREADABLE[engine.name]} WHERE id = {broken.pk}")
    assert thread.do(scheduler._step) == 0
    assert scheduler.ready.is_set()
    assert len(slots(engine, good)) == 1


@contextmanager
def without_states(engine: Engine) -> Iterator[None]:
    """Have a table be away for a while. The model's name for it is no way: fields remember it."""
    names = [ScheduleState._meta.db_table, "elsewhere"]
    sql(engine, "ALTER TABLE {} RENAME TO {}".format(*names))
    try:
        yield
    finally:
        sql(engine, "ALTER TABLE {1} RENAME TO {0}".format(*names))


def test_without_its_tables_it_says_what_to_do(engine: Engine, scheduler: Scheduler, thread: Session) -> None:
    with without_states(engine):
        assert thread.do(scheduler._step) == 0
    assert f"run {MIGRATE[engine.alias]}" in scheduler.refused
    assert not scheduler.ready.is_set()


def test_one_that_was_refused_tries_again_now_and_then_and_works_once_the_tables_are_there(
    engine: Engine, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = late(engine, HOUR, MINUTE)
    with without_states(engine):
        scheduler.start()
        first = scheduler._thread
        first.join(10)
        assert f"run {MIGRATE[engine.alias]}" in scheduler.refused
        assert scheduler.at_rest
        for _ in range(3):
            scheduler.revive()
        assert scheduler._thread is first
        scheduler._refused_at -= REFUSED_SECONDS
        scheduler.revive()
        second = scheduler._thread
        assert second is not first
        second.join(10)
        assert scheduler.refused
        scheduler.revive()
        assert scheduler._thread is second
    scheduler._refused_at -= REFUSED_SECONDS
    scheduler.revive()
    try:
        wait_for(lambda: len(slots(engine, schedule)) == 1)
    finally:
        assert scheduler.end(10)
    assert scheduler.refused == ""
    assert not [line for line in caplog.messages if "thread had ended" in line]


def test_it_is_at_rest_when_it_has_looked_and_nothing_is_due(
    engine: Engine, scheduler: Scheduler, thread: Session
) -> None:
    schedule = late(engine, HOUR, MINUTE)
    scheduler._moved_at = time.monotonic()
    found = [scheduler.at_rest]
    for _ in range(2):
        thread.do(scheduler._step)
        found.append(scheduler.at_rest)
    assert len(slots(engine, schedule)) == 1
    since(engine, schedule, MINUTE)
    thread.do(scheduler._step)
    assert [*found, scheduler.at_rest] == [False, False, True, False]


@on_postgresql
def test_it_is_at_rest_as_well_when_what_is_due_could_not_be_had_for_long(
    engine: Engine, scheduler: Scheduler, thread: Session
) -> None:
    schedule = late(engine, HOUR, MINUTE)
    scheduler._moved_at = time.monotonic()
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_schedulestate WHERE schedule_id = %s FOR UPDATE", schedule.pk)
        found = []
        for passed in (0, STUCK_SECONDS):
            scheduler._moved_at -= passed
            thread.do(scheduler._step)
            found.append(scheduler.at_rest)
        other.rollback()
    thread.do(scheduler._step)
    assert len(slots(engine, schedule)) == 1
    assert [*found, scheduler.at_rest] == [False, True, False]
    scheduler._moved_at -= STUCK_SECONDS
    thread.do(scheduler._step)
    since(engine, schedule, MINUTE)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_schedulestate WHERE schedule_id = %s FOR UPDATE", schedule.pk)
        thread.do(scheduler._step)
        other.rollback()
    assert not scheduler.at_rest


def test_an_error_of_the_thread_itself_is_survived(
    engine: Engine, scheduler: Scheduler, thread: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = late(engine, HOUR, MINUTE)

    def fail(*_: Any) -> None:
        raise RuntimeError("of the tick")

    with monkeypatch.context() as patched:
        patched.setattr(ticks, "tick", fail)
        assert thread.do(scheduler._step) == LONGEST_WAIT
    assert thread.do(scheduler._step) == 0
    assert len(slots(engine, schedule)) == 1


def test_types_that_are_not_known_here_do_not_wake_it(engine: Engine, scheduler: Scheduler, thread: Session) -> None:
    schedule = late(engine, HOUR, MINUTE)
    sql(engine, "UPDATE django_jobs_schedule SET type = 'no.such'")
    assert thread.do(scheduler._step) == LONGEST_WAIT
    assert state(engine, schedule).looked_at is None
