"""One look at the schedules that are due: their jobs are stored and their slots passed in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import DatabaseError, transaction
from django.utils.dateparse import parse_datetime

from django_jobs import log, notify
from django_jobs.engines.asking import rows as rows_of
from django_jobs.engines.base import Engine
from django_jobs.engines.values import NewJob
from django_jobs.exceptions import EnqueueTimeout
from django_jobs.models import Job, ScheduleState
from django_jobs.models.clock import Clock, for_row, from_row
from django_jobs.models.schedule import UNREADABLE
from django_jobs.queue import told
from django_jobs.queue.stats import Counted
from django_jobs.schedules import log as schedule_log
from django_jobs.schedules import rows
from django_jobs.schedules.step import MOST_CHARACTERS, MOST_JOBS, Step, broken, look, unreadable, wait

# Schedules in one transaction, and the seconds after which it takes no further one.
BATCH = 200
BATCH_SECONDS = 0.5
# What may go wrong with what is written of one schedule.
WRITING = (DatabaseError, EnqueueTimeout, TypeError, ValueError, OverflowError)
LOOKED = ("looked_at", "looked_by")


class Ticked(NamedTuple):
    """`taken`: schedules that were looked at; `fired`: jobs that were made."""

    taken: int
    fired: int


class Held(Exception):
    """What the jobs of schedules are stored in is held by another transaction; nothing was written."""


def tick(engine: Engine, types: Sequence[str], looked_by: str, *, newest: bool = False) -> Ticked:
    """Look at schedules that are due, of types that are known here, and that no other scheduler is looking at.

    Those that are due longest come first, or last with `newest`: where very many are due, as after an edit of all, in
    turns, so that what comes meanwhile is not behind them all. An error of one is written on that one, and touches no
    other. Raises Held when it is not one of them whose job cannot be stored.
    """
    with engine.storing():
        ids = list(_due(engine.alias, types, newest))
        if not ids:
            return Ticked(0, 0)
        steps = _steps(engine.alias, ids, looked_by)
        if _written(engine, steps):
            steps = _written_alone(engine, steps)
        log.when_committed(engine.alias, schedule_log.schedules_looked_at, [_told(step) for step in steps])
    return Ticked(len(steps), sum(len(step.jobs) for step in steps))


def due_in(engine: Engine, types: Sequence[str]) -> float | None:
    """Return the seconds until a schedule is due, 0 when one is, None when there is none."""
    try:
        found = rows_of(engine, *_first(engine.alias, tuple(types)))
        if not found:
            return None
        wake_at, now = (_moment(value, engine.alias) for value in found[0])
    except EmptyResultSet:  # no types
        return None
    except UNREADABLE:
        if not engine.connection.is_usable():
            raise
        return 0.0  # the tick finds out which one it is
    return max((wake_at - now).total_seconds(), 0.0)


@lru_cache(maxsize=8)
def _first(alias: str, types: tuple[str, ...]) -> tuple[str, Any]:
    # Asked every few seconds: to build it anew each time would cost more than to answer it, in time and in memory.
    states = ScheduleState.objects.using(alias).filter(wake_at__isnull=False, schedule__type__in=types)
    first = states.order_by("wake_at").annotate(clock=Clock()).values_list("wake_at", "clock")[:1]
    question, given = first.query.get_compiler(alias).as_sql()
    return question, given


def _moment(value: Any, alias: str) -> datetime:
    """Return a time as a row has it, in UTC; raise ValueError if it is none. SQLite has times as text."""
    found = value if isinstance(value, datetime) else parse_datetime(value)
    if found is None:
        raise ValueError(f"{value!r} is no time")
    return from_row(found, alias)


def _due(alias: str, types: Sequence[str], newest: bool) -> Any:
    states = ScheduleState.objects.using(alias).filter(wake_at__lte=Clock(), schedule__type__in=types)
    held = states.select_for_update(skip_locked=True, of=("self",)).order_by("-wake_at" if newest else "wake_at")
    return held.values_list("pk", flat=True)[:BATCH]


def _steps(alias: str, ids: list[int], looked_by: str) -> list[Step]:
    # Read after the rows are held: an edit holds them as well, so that these are what its writer left.
    schedules = rows.schedules(alias, ids)
    states, unreadable = _states(alias, ids)
    busy = _unfinished(alias, [state.last_job for state in states])
    end = time.monotonic() + BATCH_SECONDS
    jobs = characters = 0
    found: list[Step] = unreadable
    for state in states:
        if state.pk not in schedules:
            continue
        _make_aware(state, alias)
        step = look(schedules[state.pk], state, state.last_job in busy)
        step.fields |= dict(zip(LOOKED, (state.clock, looked_by), strict=True))
        found.append(step)
        jobs += len(step.jobs)
        characters += sum(len(job.payload) for job in step.jobs)
        if time.monotonic() > end or jobs >= MOST_JOBS or characters >= MOST_CHARACTERS:
            break
    return found


def _states(alias: str, ids: list[int]) -> tuple[list[Any], list[Step]]:
    """Return the states in the order of these ids and, for those that cannot be read, what is to be written of them."""
    read = rows.states(alias, ids)
    states = [read[pk] for pk in ids if isinstance(read.get(pk), ScheduleState)]
    wrong = [(pk, error) for pk in ids if isinstance(error := read.get(pk), Exception)]
    return states, [unreadable(pk, error) for pk, error in wrong]


def _unfinished(alias: str, ids: list[int | None]) -> set[int]:
    jobs = Job.objects.using(alias).filter(pk__in=[pk for pk in ids if pk is not None])
    return set(jobs.filter(status__in=[Job.Status.READY, Job.Status.RUNNING]).values_list("pk", flat=True))


def _make_aware(state: Any, alias: str) -> None:
    for name in ("clock", "changed_at", "last_slot", "next_run_at", "pending_slot"):
        if (value := getattr(state, name)) is not None:
            setattr(state, name, from_row(value, alias))


def _written(engine: Engine, steps: Sequence[Step]) -> Exception | None:
    """Write steps, all or none; return why they were not. Raise when it is the connection that does not work."""
    try:
        with transaction.atomic(using=engine.alias):
            _write(engine, steps)
    except WRITING as error:
        if not engine.connection.is_usable():
            raise
        return error
    return None


def _written_alone(engine: Engine, steps: Sequence[Step]) -> list[Step]:
    """Write each step by itself after all together could not be, or else, if it is that one, its error; return those.

    One whose slot somebody holds is looked at again a moment later. If there are two, it is no matter of one schedule.
    """
    found, held = [], 0
    for step in steps:
        error = _written(engine, [step])
        if error is not None:
            held += isinstance(error, EnqueueTimeout)
            if held == 2:
                raise Held("The table of jobs, or that of schedules, is held by another transaction") from error
            _turn_into(step, wait(step) if isinstance(error, EnqueueTimeout) else broken(step.name, step.state, error))
            if _written(engine, [step]) is not None:
                log.loop_failed(f"Storing the error of the schedule {step.name}")
                continue
        found.append(step)
    return found


def _turn_into(step: Step, instead: Step) -> None:
    instead.fields |= {name: step.fields[name] for name in LOOKED}
    step.jobs, step.fields, step.error, step.missed, step.dropped = [], instead.fields, instead.error, 0, 0


def _write(engine: Engine, steps: Sequence[Step]) -> None:
    jobs = [job for step in steps for job in step.jobs]
    made = iter(_stored(engine, jobs) if jobs else [])
    for queue in {job.terms.queue for step in steps for job in step.jobs if _is_due(job, step)}:
        notify.ready(engine, queue)
    states = ScheduleState.objects.using(engine.alias)
    for step in steps:
        fields = step.fields
        if step.jobs:
            fields = {**fields, **_fired(step, list(islice(made, len(step.jobs))))}
        states.filter(pk=step.state.pk).update(**{name: _as_row(value, engine.alias) for name, value in fields.items()})
    _count_missed(engine, steps)


def _count_missed(engine: Engine, steps: Sequence[Step]) -> None:
    counted = Counted()
    missed = [step for step in steps if step.missed]
    for step in missed:
        counted.add(step.queue, step.type, "slots_missed", step.missed)
    if missed:
        counted.store(engine, missed[0].state.clock)


def _is_due(job: NewJob, step: Step) -> bool:
    return job.terms.run_at is None or job.terms.run_at <= step.state.clock


def _as_row(value: Any, alias: str) -> Any:
    return for_row(value, alias) if isinstance(value, datetime) else value


def _fired(step: Step, made: list[int | None]) -> dict[str, Any]:
    return {
        "last_job": made[-1],
        "last_fired_at": Clock(),
        "last_fired_slot": step.jobs[-1].terms.slot,
        "fired": step.state.fired + len(made),
    }


def _stored(engine: Engine, jobs: Sequence[NewJob]) -> list[int | None]:
    """Store jobs and return their ids. A slot whose key is there has had its job, whatever that was called with."""
    made = engine.insert_many(jobs)
    told.fired(engine.alias, list(zip(made, jobs, strict=True)))
    taken = [str(job.idempotency_key) for job, pk in zip(jobs, made, strict=True) if pk is None]
    holders = engine.holders(taken) if taken else {}
    ids = {key: holder.pk for key, holder in holders.items()}
    # One that was deleted since then has ended.
    return [ids.get(str(job.idempotency_key)) if pk is None else pk for job, pk in zip(jobs, made, strict=True)]


def _told(step: Step) -> schedule_log.Looked:
    return schedule_log.Looked(
        name=step.name,
        fired=len(step.jobs),
        missed=step.missed,
        dropped=step.dropped,
        error=step.error if step.error != getattr(step.state, "error", "") else "",
    )
