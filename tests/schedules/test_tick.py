"""What a tick makes of schedules that are due: a job for each slot, once."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs.models import Job
from django_jobs.models.clock import Clock
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import firing, step
from django_jobs.schedules import tick as ticks
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, beside_others, claim, clock, sql
from tests.schedules.common import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    STEPS,
    TYPES,
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
    tick_all,
    wake,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = [alone, pytest.mark.contract]


@pytest.mark.fast
def test_a_slot_in_time_gets_a_job_that_is_due_at_the_slot_and_knows_it(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE, payload={"args": [3], "kwargs": {}}, queue="mail", priority=7)
    before = clock(engine)
    assert tick(engine) == (1, 1)
    (job,) = jobs(engine)
    assert schedule.anchor is not None
    slot = schedule.anchor + STEPS * HOUR
    assert (job.slot, job.run_at) == (slot, slot)
    assert (job.type, job.payload, job.queue, job.priority) == (nothing.name, {"args": [3], "kwargs": {}}, "mail", 7)
    assert job.schedule == schedule.name
    assert job.idempotency_key == f"schedule:{schedule.name}:{slot.isoformat().removesuffix('+00:00')}Z"
    found = state(engine, schedule)
    assert (found.last_slot, found.last_fired_slot, found.next_run_at, found.wake_at) == (
        slot, slot, slot + HOUR, slot + HOUR,
    )  # fmt: skip
    assert (found.last_job, found.fired, found.missed, found.error, found.looked_by) == (job.pk, 1, 0, "", "host:1")
    assert before <= found.looked_at <= found.last_fired_at <= clock(engine)
    assert tick(engine) == (0, 0)


def test_a_run_is_told_its_slot_as_an_aware_datetime_in_utc(engine: Engine) -> None:
    late(engine, HOUR, MINUTE)
    tick(engine)
    (claimed,) = claim(engine)
    assert claimed.slot == slots(engine)[0]
    assert claimed.slot is not None
    assert claimed.slot.utcoffset() == timedelta(0)


def test_a_missed_slot_gets_a_job_that_is_due_now_and_is_not_spread(engine: Engine) -> None:
    late(engine, HOUR, MINUTE, spread=30 * MINUTE, missed_grace=0)
    before = clock(engine)
    tick(engine)
    (job,) = jobs(engine)
    assert job.slot is not None
    assert job.slot < before
    assert before <= job.run_at <= clock(engine)


def test_spread_puts_jobs_off_by_a_part_of_it_that_is_always_the_same_for_a_schedule(engine: Engine) -> None:
    found = [late(engine, HOUR, MINUTE, spread=30 * MINUTE, name=f"spread {number}") for number in range(8)]
    tick_all(engine)
    offsets = [job.run_at - job.slot for job in jobs(engine) if job.slot is not None]
    assert len(offsets) == len(set(offsets)) == 8
    assert all(timedelta(0) <= offset < 30 * MINUTE for offset in offsets)
    assert [firing.offset(schedule) for schedule in found] == offsets


@pytest.mark.fast
def test_without_its_job_a_slot_never_fires_again(engine: Engine) -> None:
    schedule = late(engine, MINUTE, 10 * MINUTE, missed="all")
    tick(engine)
    assert len(slots(engine)) == 10
    Job.objects.using(engine.alias).all().delete()
    for _ in range(3):
        assert look(engine, schedule) == 0
    assert slots(engine) == []


def test_slots_up_to_a_last_one_in_the_future_do_not_fire_when_the_databases_clock_stepped_back(engine: Engine) -> None:
    schedule = late(engine, MINUTE, HOUR, missed="all")
    last = slots_of(schedule)[-1] + 5 * MINUTE
    since(engine, schedule, HOUR, last_slot=last)
    assert look(engine, schedule) == 0
    found = state(engine, schedule)
    assert (found.last_slot, found.next_run_at, found.wake_at) == (last, last + MINUTE, last + MINUTE)


def slots_of(schedule: Schedule) -> list[Any]:
    assert schedule.anchor is not None
    return schedule.next_slots(schedule.anchor, STEPS)


def test_a_key_that_is_there_counts_as_fired_whatever_its_job_was_called_with(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE, overlap="skip")
    slot = slots_of(schedule)[-1]
    other = leave_effect.enqueue("x")
    Job.objects.using(engine.alias).filter(pk=other.pk).update(idempotency_key=firing.key(schedule.name, slot))
    ready = every(engine, HOUR)
    since(engine, ready, MINUTE)
    assert tick(engine) == (2, 2)
    assert [job.schedule for job in jobs(engine)] == [ready.name]
    found = state(engine, schedule)
    assert (found.last_slot, found.last_job, found.error, found.fired) == (slot, other.pk, "", 1)


def test_a_tick_that_rolls_back_leaves_neither_a_job_nor_a_passed_slot(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    before = state(engine, schedule).last_slot
    with transaction.atomic(using=engine.alias):
        assert tick(engine).fired == 1
        transaction.set_rollback(True, using=engine.alias)
    assert (slots(engine), state(engine, schedule).last_slot) == ([], before)
    assert tick(engine).fired == 1


def test_run_now_makes_a_job_without_a_slot_and_does_not_move_the_next_one(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE, payload={"args": [5], "kwargs": {}}, queue="mail")
    tick(engine)
    before = state(engine, schedule).__dict__ | {"_state": None}
    jobs_now = [schedule.run_now(), schedule.run_now()]
    assert [(job.slot, job.schedule, job.idempotency_key, job.queue) for job in jobs_now] == [
        (None, schedule.name, None, "mail")
    ] * 2
    assert state(engine, schedule).__dict__ | {"_state": None} == before
    assert look(engine, schedule) == 0


def test_an_interval_of_half_seconds_has_a_key_for_each_slot(engine: Engine) -> None:
    late(engine, 0.5 * SECOND + SECOND, 12 * SECOND)
    tick(engine)
    keys = [job.idempotency_key for job in jobs(engine)]
    assert len(keys) in (8, 9)
    assert all(str(key).endswith("Z") for key in keys)


# Which schedules a tick takes.


def test_schedules_of_types_that_are_not_known_here_are_left_for_schedulers_that_know_them(engine: Engine) -> None:
    mine, others = late(engine, HOUR, MINUTE), late(engine, HOUR, MINUTE, type=leave_effect.name, payload=KEYED)
    wake(engine)
    assert tick(engine) == (1, 1)
    assert state(engine, others).looked_at is None
    assert ticks.due_in(engine, TYPES) > 3000  # type: ignore[operator]
    assert ticks.due_in(engine, (leave_effect.name,)) == 0
    assert ticks.due_in(engine, ("other",)) is None
    assert tick(engine, (leave_effect.name,)) == (1, 1)
    assert [job.schedule for job in jobs(engine)] == [mine.name, others.name]


KEYED = {"args": ["k"], "kwargs": {}}


def test_a_schedule_disabled_by_hand_makes_nothing_and_is_not_looked_at_again(engine: Engine) -> None:
    schedule = late(engine, MINUTE, HOUR)
    sql(engine, "UPDATE django_jobs_schedule SET enabled = false")
    assert tick(engine) == (1, 0)
    assert state(engine, schedule).wake_at is None
    assert ticks.due_in(engine, TYPES) is None


def test_the_time_until_the_next_slot_is_told_by_the_databases_clock(engine: Engine) -> None:
    schedule = every(engine, HOUR, slot_ago=HOUR - 30 * SECOND)
    assert ticks.due_in(engine, TYPES) == 0  # it was made just now
    tick(engine)
    assert 28 < (ticks.due_in(engine, TYPES) or 0) <= 30
    since(engine, schedule, HOUR, wake_at=clock(engine) + 7 * SECOND)
    assert 6 < (ticks.due_in(engine, TYPES) or 0) <= 7


# Many at once.


def test_a_thousand_that_are_due_at_once_are_made_in_few_transactions_with_few_statements(engine: Engine) -> None:
    anchor = clock(engine).replace(microsecond=0) - HOUR
    Schedule.objects.using(engine.alias).bulk_create(
        [Schedule(name=f"m{number:04}", type=nothing.name, every=HOUR, anchor=anchor) for number in range(1000)]
    )
    states(engine).update(changed_at=clock(engine) - MINUTE, wake_at=Clock())
    taken = []
    with CaptureQueriesContext(connections[engine.alias]) as queries:
        while found := tick(engine).taken:
            taken.append(found)
    assert sum(taken) == len({job.idempotency_key for job in jobs(engine)}) == 1000
    assert max(taken) <= ticks.BATCH
    per_job = 1 if engine.name == "sqlite" else 0  # which stores one after the other
    assert len(queries) <= 1000 * (1 + per_job) + 25 * (len(taken) + 1)


def test_a_batch_of_jobs_with_large_arguments_stays_small(engine: Engine) -> None:
    payload = {"args": [], "kwargs": {"number": "x" * 1_000_000}}
    found = [late(engine, MINUTE, 10 * MINUTE, missed="all", payload=payload) for _ in range(2)]
    made_jobs, most = 0, step.MOST_CHARACTERS // 1_000_000 - 1
    while ticked := tick(engine):
        if not ticked.taken:
            break
        assert ticked.fired <= 2 * most
        made_jobs += ticked.fired
    assert made_jobs == 20
    for schedule in found:
        assert slots(engine, schedule) == sorted(set(slots(engine, schedule)))
        assert len(slots(engine, schedule)) == 10


def test_a_batch_is_cut_when_the_arguments_of_its_schedules_are_large_together(engine: Engine) -> None:
    payload = {"args": [], "kwargs": {"number": "x" * 1_000_000}}
    for _ in range(6):
        late(engine, HOUR, MINUTE, payload=payload)
    assert [tick(engine).fired, tick(engine).fired, tick(engine).fired] == [4, 2, 0]


def test_more_slots_than_are_made_at_once_are_made_by_the_next_ticks(engine: Engine) -> None:
    late(engine, SECOND, 2500 * SECOND, missed="all", missed_limit=2200, missed_grace=0)
    fired = []
    while (found := tick(engine)).taken:
        fired.append(found.fired)
    assert fired[:2] == [1000, 1000]
    assert 2200 <= sum(fired) <= 2210  # and those that came meanwhile
    made_slots = slots(engine)
    assert made_slots == sorted(set(made_slots))


@beside_others
def test_all_that_a_tick_does_is_one_transaction(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    seen: list[tuple[int, Any]] = []

    def watch(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        found = execute(statement, parameters, many, context)
        if statement.startswith(("INSERT", "UPDATE", "WITH", "SELECT")):
            seen.append((connections[engine.alias].in_atomic_block, statement))
        return found

    with connections[engine.alias].execute_wrapper(watch):
        tick(engine)
    assert seen
    assert all(inside for inside, _statement in seen)
    assert len(slots(engine, schedule)) == 1


def test_the_slots_of_an_expression_are_those_of_its_zone(engine: Engine) -> None:
    schedule = made(engine, expression="* * * * *", timezone="Asia/Kathmandu", missed="all")
    now = since(engine, schedule, DAY // 24)
    tick(engine)
    found = slots(engine, schedule)
    assert len(found) in (60, 61)
    assert all((slot.second, slot.microsecond) == (0, 0) for slot in found)
    assert found[-1] >= now.astimezone(UTC) - MINUTE
