"""One look at the schedules that are due: their jobs are stored and their slots passed in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction

from django_jobs import log
from django_jobs.conf import conf
from django_jobs.engines.base import Engine, NewJob
from django_jobs.models import Job
from django_jobs.models.clock import Clock, for_row, from_row
from django_jobs.models.schedule import Schedule, ScheduleState
from django_jobs.payload import storable
from django_jobs.schedules import definition, due
from django_jobs.schedules.firing import job_of
from django_jobs.schedules.sync import said
from django_jobs.slots import CronSlots, Slot, Slots

# Schedules in one transaction, and the seconds after which it takes no further one.
BATCH = 200
BATCH_SECONDS = 0.5
# Jobs that are stored at once, and the JSON of one schedule's; what is left is made at once afterwards.
MOST_JOBS = 1_000
MOST_CHARACTERS = 4_000_000
# How often a slot that waits for the run before it looks whether that has ended.
PENDING_SECONDS = 1.0
FIRST_RETRY, LONGEST_RETRY = 15.0, 3600.0
ERROR_LIMIT = 1_000


class Ticked(NamedTuple):
    """`taken`: schedules that were looked at; `fired`: jobs that were made."""

    taken: int
    fired: int


NOTHING = Ticked(0, 0)


@dataclass(slots=True)
class _Step:
    """What is to be written of one schedule."""

    schedule: Schedule
    state: ScheduleState
    fields: dict[str, Any]
    jobs: list[NewJob] = field(default_factory=list)
    dropped: int = 0
    missed: int = 0
    error: str = ""


def tick(engine: Engine, types: Sequence[str], looked_by: str) -> Ticked:
    """Look at schedules that are due, of types that are known here, and that no other scheduler is looking at.

    An error of one is written on that one, and touches no other.
    """
    with engine.storing():
        states = list(_due(engine.alias, types))
        if not states:
            return NOTHING
        steps = _steps(engine.alias, states, looked_by)
        try:
            with transaction.atomic(using=engine.alias):
                _write(engine, steps)
        except DatabaseError:
            if not engine.connection.is_usable():
                raise
            for step in steps:
                _write_alone(engine, step)
        log.when_committed(engine.alias, log.schedules_looked_at, [_told(step) for step in steps])
    return Ticked(len(steps), sum(len(step.jobs) for step in steps))


def due_in(engine: Engine, types: Sequence[str]) -> float | None:
    """Return the seconds until a schedule is due, 0 when one is, None when there is none."""
    rows = ScheduleState.objects.using(engine.alias).filter(wake_at__isnull=False, schedule__type__in=types)
    first = rows.order_by("wake_at").annotate(clock=Clock()).values_list("wake_at", "clock").first()
    return None if first is None else max((first[0] - first[1]).total_seconds(), 0.0)


def _due(alias: str, types: Sequence[str]) -> Any:
    rows = ScheduleState.objects.using(alias).filter(wake_at__lte=Clock(), schedule__type__in=types)
    return rows.select_for_update(skip_locked=True, of=("self",)).annotate(clock=Clock()).order_by("wake_at")[:BATCH]


def _steps(alias: str, states: list[Any], looked_by: str) -> list[_Step]:
    # Read after the rows are held: an edit holds them as well, so that these are what its writer left.
    schedules = Schedule.objects.using(alias).in_bulk([state.pk for state in states])
    busy = _unfinished(alias, [state.last_job for state in states])
    end = time.monotonic() + BATCH_SECONDS
    found: list[_Step] = []
    for state in states:
        _make_aware(state, alias)
        if state.pk in schedules:
            found.append(_step(schedules[state.pk], state, state.last_job in busy, looked_by))
        if time.monotonic() > end or sum(len(step.jobs) for step in found) >= MOST_JOBS:
            break
    return found


def _unfinished(alias: str, ids: list[int | None]) -> set[int]:
    jobs = Job.objects.using(alias).filter(pk__in=[pk for pk in ids if pk is not None])
    return set(jobs.filter(status__in=[Job.Status.READY, Job.Status.RUNNING]).values_list("pk", flat=True))


def _make_aware(state: Any, alias: str) -> None:
    for name in ("clock", "changed_at", "last_slot", "next_run_at", "pending_slot"):
        if (value := getattr(state, name)) is not None:
            setattr(state, name, from_row(value, alias))


def _step(schedule: Schedule, state: Any, busy: bool, looked_by: str) -> _Step:
    try:
        found = _decided(schedule, state, busy, state.clock)
    except Exception as error:  # whatever it is, it is this schedule's
        found = _broken(schedule, state, error)
    found.fields |= {"looked_at": state.clock, "looked_by": looked_by}
    return found


def _decided(schedule: Schedule, state: ScheduleState, busy: bool, now: datetime) -> _Step:
    if not schedule.enabled:
        return _Step(schedule, state, {"wake_at": None, "next_run_at": None})
    call = definition.call(schedule)
    slots = definition.slots(schedule, now)
    edited = state.timing not in ("", definition.timing(schedule))
    past = _past_of_edited(state, busy, now) if edited else _past(schedule, state, busy)
    found = due.decide(slots, _rules(schedule, len(call.payload)), past, now)
    jobs = [job_of(schedule, call, fire.at, fire.late) for fire in found.fire]
    fields = {
        "wake_at": _wake_at(found, now),
        "next_run_at": found.next and found.next.at,
        "pending_slot": found.pending,
        "timing": definition.timing(schedule),
        "zone_data": definition.zone_data(schedule),
        "error": "",
        "errors": 0,
        "missed": state.missed + found.missed,
        "skipped": state.skipped + found.skipped,
        "dropped": state.dropped + found.dropped,
        **({"changed_at": now, "last_reading": ""} if edited else {}),
        **(_last(found.last, slots) if found.last else {}),
    }
    return _Step(schedule, state, fields, jobs, dropped=found.dropped, missed=found.missed)


def _wake_at(found: due.Decision, now: datetime) -> datetime | None:
    times = [found.next.at] if found.next else []
    if found.pending:
        times.append(now + timedelta(seconds=PENDING_SECONDS))
    return min(times, default=None)


def _last(slot: Slot, slots: Slots) -> dict[str, Any]:
    # In real time each slot is its instant, whatever the clock shows.
    by_wall_clock = isinstance(slots, CronSlots) and not slots.cron.follows_real_time
    if slot.reading is None or not by_wall_clock:
        return {"last_slot": slot.at}
    return {"last_slot": slot.at, "last_reading": slot.reading.isoformat(), "last_fold": slot.fold}


def _past(schedule: Schedule, state: ScheduleState, busy: bool) -> due.Past:
    by_other_data = state.zone_data != definition.zone_data(schedule)
    return due.Past(
        since=max(state.changed_at, state.last_slot or state.changed_at),
        reading=datetime.fromisoformat(state.last_reading) if state.last_reading else None,
        fold=state.last_fold,
        planned=state.next_run_at if by_other_data else None,
        pending=state.pending_slot,
        busy=busy,
    )


def _past_of_edited(state: ScheduleState, busy: bool, now: datetime) -> due.Past:
    """Return where times begin that were changed past `save()`, as in SQL: now, as they do by `save()`."""
    return due.Past(since=max(now, state.last_slot or now), busy=busy)


def _rules(schedule: Schedule, characters: int) -> due.Rules:
    grace = conf().missed_grace if schedule.missed_grace is None else schedule.missed_grace.total_seconds()
    limits = {"skip": 0, "latest": 1, "all": schedule.missed_limit}
    # What waits for the run before it keeps one slot, whatever was missed.
    at_most_one = schedule.overlap == Schedule.Overlap.QUEUE
    limit = limits[schedule.missed]
    return due.Rules(
        grace=timedelta(seconds=grace),
        limit=min(limit, 1) if at_most_one else limit,
        window=schedule.missed_window,
        overlap=schedule.overlap,
        at_once=max(1, min(MOST_JOBS, MOST_CHARACTERS // characters)),
        both_passes=schedule.ambiguous == Schedule.Ambiguous.BOTH,
    )


def _broken(schedule: Schedule, state: Any, error: Exception) -> _Step:
    text = said(error) if isinstance(error, ValidationError) else str(error) or type(error).__name__
    wait = min(FIRST_RETRY * 2 ** min(state.errors, 20), LONGEST_RETRY)
    fields = {
        "error": storable(text)[:ERROR_LIMIT],
        "errors": state.errors + 1,
        "wake_at": state.clock + timedelta(seconds=wait),
    }
    return _Step(schedule, state, fields, error=text)


def _write(engine: Engine, steps: Sequence[_Step]) -> None:
    jobs = [job for step in steps for job in step.jobs]
    made = iter(_stored(engine, jobs) if jobs else [])
    states = ScheduleState.objects.using(engine.alias)
    for step in steps:
        fields = step.fields
        if step.jobs:
            fields = {**fields, **_fired(step, list(islice(made, len(step.jobs))))}
        states.filter(pk=step.state.pk).update(**{name: _as_row(value, engine.alias) for name, value in fields.items()})


def _as_row(value: Any, alias: str) -> Any:
    return for_row(value, alias) if isinstance(value, datetime) else value


def _fired(step: _Step, made: list[int]) -> dict[str, Any]:
    return {
        "last_job": made[-1],
        "last_fired_at": Clock(),
        "last_fired_slot": step.jobs[-1].slot,
        "fired": step.state.fired + len(made),
    }


def _stored(engine: Engine, jobs: Sequence[NewJob]) -> list[int]:
    """Store jobs and return their ids. A slot whose key is there has had its job, whatever that was called with."""
    made = engine.insert_many(jobs)
    taken = [str(job.idempotency_key) for job, pk in zip(jobs, made, strict=True) if pk is None]
    holders = engine.holders(taken) if taken else {}
    return [holders[str(job.idempotency_key)].pk if pk is None else pk for job, pk in zip(jobs, made, strict=True)]


def _write_alone(engine: Engine, step: _Step) -> None:
    """Write one schedule's step after one of them could not be written; if it is this one, its error instead."""
    try:
        with transaction.atomic(using=engine.alias):
            _write(engine, [step])
    except DatabaseError as error:
        if not engine.connection.is_usable():
            raise
        instead = _broken(step.schedule, step.state, error)
        step.jobs, step.fields, step.error = [], instead.fields, instead.error
        with transaction.atomic(using=engine.alias):
            _write(engine, [step])


def _told(step: _Step) -> log.Looked:
    return log.Looked(
        name=step.schedule.name,
        fired=len(step.jobs),
        missed=step.missed,
        dropped=step.dropped,
        error=step.error if step.error != step.state.error else "",
    )
