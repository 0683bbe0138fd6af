"""What one look at one schedule makes of it: the jobs and what is to be written of it. Nothing here asks the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError

from django_jobs.conf import conf
from django_jobs.engines.values import NewJob
from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import Clock
from django_jobs.payload import storable
from django_jobs.schedules import definition, due
from django_jobs.schedules.faults import said
from django_jobs.schedules.firing import job_of
from django_jobs.slots import CronSlots, Slot, Slots

# Jobs that one schedule makes at once, and a transaction, and their JSON; what is left is made at once afterwards.
MOST_JOBS = 1_000
MOST_CHARACTERS = 4_000_000
# How often a slot that waits for the run before it looks whether that has ended.
PENDING_SECONDS = 1.0
HELD_SECONDS = 2.0
FIRST_RETRY, LONGEST_RETRY = 15.0, 3600.0
ERROR_LIMIT = 1_000


@dataclass(slots=True)
class Step:
    """What is to be written of one schedule."""

    name: str
    state: Any
    fields: dict[str, Any]
    jobs: list[NewJob] = field(default_factory=list)
    # Of its jobs.
    queue: str = ""
    type: str = ""
    dropped: int = 0
    missed: int = 0
    error: str = ""


def look(schedule: Schedule | Exception, state: Any, busy: bool) -> Step:
    """Decide on one schedule; `schedule` is an error when its row could not be read, `state.clock` the time now."""
    if isinstance(schedule, Exception):
        return broken(f"of id {state.pk}", state, schedule)
    try:
        return _decided(schedule, state, busy, state.clock)
    except Exception as error:  # whatever it is, it is this schedule's
        return broken(schedule.name, state, error)


def broken(name: str, state: Any, error: Exception) -> Step:
    """Return the step of a schedule that cannot be used: its slots wait, and it is tried again after growing waits."""
    text = said(error) if isinstance(error, ValidationError) else str(error) or type(error).__name__
    wait = min(FIRST_RETRY * 2 ** min(state.errors, 20), LONGEST_RETRY)
    fields = {
        "error": storable(text)[:ERROR_LIMIT],
        "errors": state.errors + 1,
        "wake_at": state.clock + timedelta(seconds=wait),
    }
    return Step(name, state, fields, error=fields["error"])


def wait(step: Step) -> Step:
    """Return the step of a schedule whose job cannot be stored just now: it is looked at again a moment later."""
    return Step(step.name, step.state, {"wake_at": step.state.clock + timedelta(seconds=HELD_SECONDS)})


def unreadable(pk: int, error: Exception) -> Step:
    """Return the step of a schedule whose state cannot even be read: what keeps it from stopping the others."""
    text = f"Its state cannot be read ({str(error) or type(error).__name__})"
    text = storable(text)[:ERROR_LIMIT]
    fields = {"error": text, "errors": 1, "wake_at": Clock() + timedelta(seconds=LONGEST_RETRY)}
    return Step(f"of id {pk}", ScheduleState(pk=pk), fields, error=text)


def _decided(schedule: Schedule, state: ScheduleState, busy: bool, now: datetime) -> Step:
    if not schedule.enabled:
        return Step(schedule.name, state, {"wake_at": None, "next_run_at": None})
    edited = state.timing not in ("", definition.timing(schedule))
    call = definition.call(schedule)
    # An interval that counts from nowhere, as one made by SQL may, counts from where its slots do.
    slots = definition.slots(schedule, now if edited else state.changed_at)
    definition.check_rules(schedule)
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
    terms = call.terms
    return Step(schedule.name, state, fields, jobs, terms.queue, terms.type, found.dropped, found.missed)


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
    )
