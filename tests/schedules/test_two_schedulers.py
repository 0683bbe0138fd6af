"""Schedulers that meet each other and edits, on sessions of their own."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from django.db import connections

from django_jobs.models import Job
from django_jobs.models.clock import Clock
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import survey
from django_jobs.schedules import tick as ticks
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others, clock, on_postgresql, sql
from tests.plans import explained
from tests.schedules.common import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    TYPES,
    every,
    jobs,
    late,
    look,
    made,
    slots,
    state,
    states,
    tick,
    wake,
)
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from typing import Any

    from django_jobs.engines.base import Engine

pytestmark = pytest.mark.contract
# What waits for nobody is over within so many seconds.
SOON = 10


@on_postgresql
@beside_others
def test_a_schedule_that_another_scheduler_looks_at_is_passed_by_and_fires_once(engine: Engine) -> None:
    first, second = late(engine, HOUR, MINUTE), late(engine, HOUR, MINUTE)
    with session(engine.alias) as other, session(engine.alias) as mine:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_schedulestate WHERE schedule_id = %s FOR UPDATE", first.pk)
        assert mine.start(partial(tick, engine)).result(SOON) == (1, 1)
        assert mine.start(partial(tick, engine)).result(SOON) == (0, 0)
        assert ticks.due_in(engine, TYPES) == 0
        other.rollback()
    assert tick(engine) == (1, 1)
    assert [job.schedule for job in jobs(engine)] == [second.name, first.name]


@on_postgresql
@beside_others
@pytest.mark.parametrize("ends", [True, False])
def test_what_a_scheduler_made_and_did_not_commit_another_makes_only_if_it_never_does(
    engine: Engine, ends: bool
) -> None:
    schedule = late(engine, HOUR, MINUTE)
    with session(engine.alias) as other, session(engine.alias) as mine:
        other.begin()
        assert other.do(partial(tick, engine)) == (1, 1)
        assert mine.start(partial(tick, engine)).result(SOON) == (0, 0)
        other.commit() if ends else other.rollback()
    assert tick(engine).fired == (not ends)
    assert len(slots(engine, schedule)) == 1


@beside_others
def test_many_schedulers_and_a_slot_each_moment_make_each_job_once(engine: Engine) -> None:
    found = [every(engine, 1.5 * SECOND, missed="all", missed_grace=0) for _ in range(5)]
    states(engine).update(changed_at=clock(engine) - 15 * SECOND)
    stop = threading.Event()

    def schedule(number: int) -> int:
        fired = 0
        try:
            for _ in range(25):
                if number == 0:  # one has them looked at all the time, and deletes what they made
                    wake(engine)
                    Job.objects.using(engine.alias).filter(status="done").delete()
                    Job.objects.using(engine.alias).filter(status="ready").update(status="done", finished_at=Clock())
                fired += tick(engine).fired
        finally:
            stop.set()
        return fired

    fired = sum(together([partial(schedule, number) for number in range(3)]))
    total = 0
    for one in found:
        now = state(engine, one)
        assert now.fired == len(one.next_slots(now.changed_at, 100)[: now.fired])
        assert one.next_slots(now.changed_at, now.fired)[-1] == now.last_slot
        total += now.fired
    assert (fired, total) == (total, fired)
    assert total >= 50


@on_postgresql
@beside_others
def test_an_edit_waits_for_the_tick_that_looks_at_its_schedule_and_begins_after_it(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    with session(engine.alias) as other, session(engine.alias) as person:
        other.begin()
        other.do(partial(tick, engine))
        waits = person.start(partial(set_every, engine, schedule))
        wait_for_blocked()
        other.commit()
        waits.result(10)
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert found.next_run_at - found.looked_at <= MINUTE
    assert slots(engine) == [found.last_slot]


@on_postgresql
@beside_others
def test_a_tick_passes_by_what_is_being_edited_and_then_sees_what_it_has_become(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE, missed="all")
    with session(engine.alias) as person, session(engine.alias) as mine:
        person.begin()
        person.do(partial(set_every, engine, schedule))
        assert mine.start(partial(tick, engine)).result(SOON) == (0, 0)
        person.commit()
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert found.next_run_at - found.looked_at <= MINUTE


def set_every(engine: Engine, schedule: Schedule) -> None:
    mine = Schedule.objects.using(engine.alias).get(pk=schedule.pk)
    mine.every = MINUTE
    mine.save()


@on_postgresql
@beside_others
def test_the_definition_is_read_after_the_row_is_held(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    edit = """UPDATE django_jobs_schedule SET payload = '{"args": [77], "kwargs": {}}', timezone = 'Asia/Tokyo'"""
    done: list[Any] = []

    def meddle(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        found = execute(statement, parameters, many, context)
        if "SKIP LOCKED" in statement and not done:
            done.append(other.sql(edit))  # between the lock and all else
        return found

    with session(engine.alias) as other, connections[engine.alias].execute_wrapper(meddle):
        assert tick(engine) == (1, 1)
    assert jobs(engine)[0].payload["args"] == [77]
    assert "Asia/Tokyo" in state(engine, schedule).timing


@on_postgresql
@beside_others
def test_a_scheduler_that_starts_beside_an_edit_of_many_does_not_get_in_its_way(engine: Engine) -> None:
    found = [every(engine, HOUR) for _ in range(6)]
    tick(engine)
    states(engine).update(timing="others")
    backwards = [schedule.pk for schedule in reversed(found)]
    with session(engine.alias) as person, session(engine.alias) as other:
        person.begin()
        person.sql("SELECT 1 FROM django_jobs_schedulestate WHERE schedule_id = %s FOR UPDATE", backwards[0])
        waits = other.start(partial(survey.recompute_stale, engine.alias))
        wait_for_blocked()
        for pk in backwards:
            person.sql("UPDATE django_jobs_schedulestate SET errors = 1 WHERE schedule_id = %s", pk)
        person.commit()
        waits.result(10)
    assert states(engine).filter(wake_at__lte=clock(engine), errors=1).count() == 6


@beside_others
def test_two_schedulers_that_start_at_once_make_the_states_of_rows_without_one_once(engine: Engine) -> None:
    Schedule.objects.using(engine.alias).bulk_create(
        [Schedule(name=f"b{number}", type=nothing.name, every=HOUR) for number in range(50)]
    )
    states(engine).all().delete()
    together([partial(survey.adopt, engine.alias)] * 3)
    assert states(engine).count() == 50
    assert tick(engine).taken == 50


# Of a hundred thousand schedules ten are due.

FILL = """
INSERT INTO django_jobs_schedule (name, type, payload, expression, every, anchor, timezone, nonexistent, ambiguous,
                                  missed, missed_limit, overlap, queue, enabled)
SELECT 'p' || n, 'tests.app.jobs.nothing', '{"args": [], "kwargs": {}}', '', interval '1 day', now(), 'UTC',
       'after_gap', 'first', 'latest', 100, 'allow', '', n %% 10 <> 0
  FROM generate_series(1, 100000) n
"""
FILL_STATES = """
INSERT INTO django_jobs_schedulestate (schedule_id, wake_at)
SELECT id, CASE WHEN enabled THEN now() + (row_number() OVER (ORDER BY id) - 10) * interval '1 second' END
  FROM django_jobs_schedule
"""


@on_postgresql
@alone
def test_a_tick_reads_the_schedules_that_are_due_and_no_others(engine: Engine) -> None:
    sql(engine, FILL)
    sql(engine, FILL_STATES)
    sql(engine, "ANALYZE django_jobs_schedule, django_jobs_schedulestate")
    nodes: list[dict[str, Any]] = []

    def explain(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        if statement.startswith(("SELECT", "UPDATE")) and "django_jobs_schedule" in statement:
            nodes.extend(explained(statement, parameters, context))
            if statement.startswith("UPDATE"):
                return None
        return execute(statement, parameters, many, context)

    with connections[engine.alias].execute_wrapper(explain):
        assert ticks.due_in(engine, TYPES) == 0
        assert 9 <= tick(engine).taken <= 20
    assert "django_jobs_schedule_wake" in {node.get("Index Name") for node in nodes}
    scans = [node for node in nodes if str(node.get("Relation Name", "")).startswith("django_jobs_schedule")]
    assert "Seq Scan" not in {node["Node Type"] for node in scans}
    read = [(n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"] for n in scans]
    assert sum(read) < 400


@alone
def test_a_look_at_nothing_writes_nothing(engine: Engine) -> None:
    schedule = made(engine, every=DAY)
    tick(engine)
    before = state(engine, schedule).looked_at
    assert tick(engine) == (0, 0)
    assert state(engine, schedule).looked_at == before
    states(engine).update(wake_at=Clock())
    assert look(engine, schedule) == 0
    assert state(engine, schedule).looked_at > before
