"""How a schedule is doing, and what it is going to do, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext

from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import from_row
from django_jobs.schedules import code, definition
from django_jobs.schedules.definition import alias_of
from django_jobs.schedules.faults import said
from django_jobs.schedules.holding import holding
from django_jobs.schedules.holding import said as pauses_said
from django_jobs.slots import Slot, Slots, Touched, touched
from django_jobs.texts import Text, foreign, of, span
from django_jobs.texts import text as _
from django_jobs.zones import Change, changes, zone

# A scheduler that runs is never so late without a reason that a person wants to know.
OVERDUE = timedelta(seconds=10)
CHANGES_SHOWN = 2
START = _("start `manage.py runworkers` or `manage.py runscheduler`")

State = Literal["ok", "held", "paused", "orphaned", "broken", "overdue"]
STATES: tuple[State, ...] = ("ok", "overdue", "held", "paused", "broken", "orphaned")


class Condition(NamedTuple):
    """The state of a schedule, and in a sentence why; when it is ok only of a pause that ends in time."""

    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The next slots of a schedule, and what the next changes of its zone's clock do to it."""

    slots: list[Slot]
    changes: list[tuple[Change, Touched]]


def condition(schedule: Schedule, now: datetime, pauses: Sequence[Any] = ()) -> Condition:
    """Return the state of a stored schedule at the database's time `now`, its `state` being loaded, with the pauses in force."""
    if not schedule.enabled:
        return Condition("paused", _paused(schedule, now))
    if is_orphaned(schedule):
        return Condition("orphaned", _orphaned(schedule))
    if wrong := fault(schedule):
        return Condition("broken", wrong)
    state = getattr(schedule, "state", None)
    if state is None:
        return Condition("overdue", _("No scheduler has seen it yet; %s.", START))
    if state.error:
        return Condition("broken", _at_the_time(state))
    if state.wake_at is None and state.next_run_at is None and state.timing:
        return Condition("broken", _("No slot of it comes any more after the last one that its state names."))
    if state.wake_at is None and state.next_run_at is None:
        return Condition("overdue", _("It was enabled past Django, and no scheduler has seen it since; %s.", START))
    due = state.next_run_at or state.wake_at
    if due is not None and (late := now - from_row(due, alias_of(schedule))) > OVERDUE:
        return Condition("overdue", _overdue(state, late))
    held_by = holding(schedule, pauses)
    if reaching := [pause for pause in held_by if _reaches(pause, state, due, alias_of(schedule))]:
        return Condition("held", _("Its jobs are made, and wait: %s.", pauses_said(reaching)))
    if held_by:
        return Condition(
            "ok", _("No run of it is touched, for this ends before the next one: %s.", pauses_said(held_by))
        )
    return Condition("ok")


def _reaches(pause: Any, state: ScheduleState, due: datetime | None, alias: str) -> bool:
    """Tell whether a pause goes on until the next run; a slot that waits for the job before may come at any time."""
    if pause.until is None or due is None or state.pending_slot:
        return True
    return from_row(pause.until, alias) > from_row(due, alias)


def unreadable(error: Exception) -> Condition:
    """Return the condition of a schedule whose row cannot even be read, as after SQL by hand."""
    return Condition("broken", _("Its row cannot be read: %s", of(error) or type(error).__name__))


def is_orphaned(schedule: Schedule) -> bool:
    """Tell whether a schedule came from the code, and the code that runs here no longer has it."""
    return schedule.code is not None and code.find(schedule.name) is None


def fault(schedule: Schedule) -> str:
    """Return what is wrong with a schedule's values, however they came there; empty when they can be used."""
    try:
        schedule.clean_fields(exclude=["name"])
        schedule.clean()
    except ValidationError as error:
        return said(error)
    return ""


def preview(schedule: Schedule, now: datetime, count: int) -> Preview:
    """Return what a schedule, stored or not, is going to do; raise ValidationError when its times cannot be used."""
    slots = definition.slots(schedule, now)
    return Preview(
        slots=list(islice(slots.after(_since(schedule, now)), count)), changes=_changes(schedule, slots, now)
    )


def _since(schedule: Schedule, now: datetime) -> datetime:
    state: ScheduleState | None = getattr(schedule, "state", None)
    last = state and state.last_slot and from_row(state.last_slot, alias_of(schedule))
    return max(now, last or now)


def _changes(schedule: Schedule, slots: Slots, now: datetime) -> list[tuple[Change, Touched]]:
    return [(change, touched(slots, change)) for change in _changes_of(schedule.timezone, now)]


@lru_cache(maxsize=256)
def _changes_of(key: str, now: datetime) -> list[Change]:
    # Thousands of schedules that are shown at once are of a few zones.
    return changes(zone(key), now, CHANGES_SHOWN)


def _paused(schedule: Schedule, now: datetime) -> Text:
    state: ScheduleState | None = getattr(schedule, "state", None)
    orphan = _(" The code that runs here no longer has it.") if is_orphaned(schedule) else ""
    if state is None or not state.paused_at:
        return _("It makes no jobs until it is resumed.%s", orphan)
    return _(
        "Paused%(by)s %(age)s ago%(why)s. It makes no jobs until it is resumed.%(orphan)s",
        by=_(" by %s", state.paused_by) if state.paused_by else "",
        age=span(now - from_row(state.paused_at, alias_of(schedule))),
        why=f": {state.paused_why}" if state.paused_why else "",
        orphan=orphan,
    )


def _orphaned(schedule: Schedule) -> Text:
    state: ScheduleState | None = getattr(schedule, "state", None)
    wrong = fault(schedule) or (_at_the_time(state) if state and state.error else "")
    if wrong:
        return _("The code that runs here no longer has it; nothing is made, because %s", wrong)
    return _("The code that runs here no longer has it; it goes on until it is paused or deleted.")


def _at_the_time(state: ScheduleState) -> Text:
    """Return the error that a scheduler has stored; pages say whose words it is in."""
    return foreign(lambda: gettext("the scheduler said: %s") % state.error, state.error)


def _overdue(state: ScheduleState, late: timedelta) -> Text:
    words = {"late": span(late), "start": START}
    if state.next_run_at:
        return _("Its slot came %(late)s ago, and no scheduler that knows its job has looked; %(start)s.", **words)
    return _("It was changed %(late)s ago, and no scheduler that knows its job has looked; %(start)s.", **words)
