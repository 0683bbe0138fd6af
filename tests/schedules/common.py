"""Words that the tests of schedules share. Time is the database's: what lies back is put back in the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from django_jobs.models import Job, Schedule, ScheduleState
from django_jobs.models.clock import Clock
from django_jobs.schedules import tick as ticks
from tests.app.jobs import nothing
from tests.engines.common import clock

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

TYPES = (nothing.name,)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=seconds) for seconds in (1, 60, 3600, 86400))
# How many slots an interval has behind it.
STEPS = 5000
_numbers = count()


def made(engine: Engine, **values: Any) -> Schedule:
    """Return a stored schedule: each minute unless told otherwise."""
    given = {"name": f"s{next(_numbers)}", "type": nothing.name, **values}
    if not given.keys() & {"every", "expression"}:
        given["every"] = MINUTE
    found = Schedule(**given)
    found.save(using=engine.alias)
    return found


def since(engine: Engine, schedule: Schedule, ago: timedelta, **values: Any) -> datetime:
    """Have the slots of a schedule count from so long ago, and be looked at now; return the database's time."""
    now = clock(engine)
    changed = {"changed_at": now - ago, "last_slot": None, "wake_at": Clock(), **values}
    assert states(engine).filter(pk=schedule.pk).update(**changed) == 1
    return now


def every(engine: Engine, interval: timedelta, *, slot_ago: timedelta = SECOND, **values: Any) -> Schedule:
    """Return a schedule with an interval of which one slot was so long ago, to the whole second."""
    anchor = clock(engine).replace(microsecond=0) - slot_ago - STEPS * interval
    return made(engine, every=interval, anchor=anchor, **values)


def late(engine: Engine, interval: timedelta, ago: timedelta, **values: Any) -> Schedule:
    """Return a schedule that nobody looked at for so long, of which a slot was a second ago."""
    found = every(engine, interval, **values)
    since(engine, found, ago)
    return found


def states(engine: Engine) -> Any:
    return ScheduleState.objects.using(engine.alias)


def state(engine: Engine, schedule: Schedule) -> Any:
    return states(engine).get(pk=schedule.pk)


def wake(engine: Engine, *schedules: Schedule) -> None:
    chosen = states(engine).filter(pk__in=[schedule.pk for schedule in schedules]) if schedules else states(engine)
    chosen.update(wake_at=Clock())


def tick(engine: Engine, types: tuple[str, ...] = TYPES) -> ticks.Ticked:
    return ticks.tick(engine, types, "host:1")


def tick_all(engine: Engine) -> int:
    """Tick until nothing is due; return how often."""
    for number in range(1, 200):
        if tick(engine).taken == 0:
            return number - 1
    raise AssertionError("something is due for ever")


def look(engine: Engine, *schedules: Schedule) -> int:
    """Have schedules looked at, now; return how many jobs were made."""
    wake(engine, *schedules)
    return tick(engine).fired


def jobs(engine: Engine, schedule: Schedule | None = None) -> list[Job]:
    found = Job.objects.using(engine.alias).exclude(slot=None).order_by("id")
    return list(found if schedule is None else found.filter(schedule=schedule.name))


def slots(engine: Engine, schedule: Schedule | None = None) -> list[datetime]:
    """Return the slots of the jobs that were made, in the order in which they were."""
    return [job.slot for job in jobs(engine, schedule) if job.slot is not None]


def end_jobs(engine: Engine) -> None:
    Job.objects.using(engine.alias).update(status="done", finished_at=Clock())


def planned(schedule: Schedule, now: datetime, ago: timedelta) -> list[datetime]:
    """Return the slots of an interval in the time before now, by counting."""
    assert schedule.every is not None
    assert schedule.anchor is not None
    at, found = schedule.anchor.astimezone(UTC), []
    while at <= now:
        if at > now - ago:
            found.append(at)
        at += schedule.every
    return found
