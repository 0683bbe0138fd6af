"""What the rules say, the slow way: walk UTC minute by minute, look at the clock, and keep what matches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from django_jobs.slots import CronSlots

MINUTE = timedelta(minutes=1)
# A slot depends on what the clock shows within a day around it, where a whole day is left out or comes twice.
MARGIN = timedelta(hours=29)


@dataclass(frozen=True)
class Clock:
    """What a zone's clock shows at each minute of a stretch of UTC."""

    minutes: list[datetime]
    readings: list[datetime]

    @classmethod
    def of(cls, zone: ZoneInfo, start: datetime, end: datetime) -> Clock:
        count = (end - start) // MINUTE
        minutes = [start + number * MINUTE for number in range(count)]
        shown = [at.astimezone(zone).replace(tzinfo=None, second=0, fold=0) for at in minutes]
        return cls(minutes, shown)


def slots(clock: Clock, schedule: CronSlots) -> dict[datetime, datetime]:
    """Return the readings of the slots by their instants, in order; not to be trusted within MARGIN of the ends."""
    cron = schedule.cron
    comes: dict[datetime, list[datetime]] = {}
    for at, reading in zip(clock.minutes, clock.readings, strict=True):
        comes.setdefault(reading, []).append(at)
    found: list[tuple[datetime, datetime]] = []
    for reading, instants in comes.items():
        if matches(schedule, reading):
            first_second = {"first": instants[:1], "second": instants[-1:], "both": instants}[schedule.ambiguous]
            found += [(at, reading) for at in (instants if cron.follows_real_time else first_second)]
    if schedule.nonexistent == "after_gap" and not cron.follows_real_time:
        latest = clock.readings[0]
        for (_, before), (at, after) in pairwise(zip(clock.minutes, clock.readings, strict=True)):
            latest = max(latest, before)
            missing = latest + MINUTE
            while missing < after:
                if missing not in comes and matches(schedule, missing):
                    found.append((at, missing))
                missing += MINUTE
    return dict(sorted(found))


def matches(schedule: CronSlots, reading: datetime) -> bool:
    """Return whether an expression names a reading, with the day rules spelled out."""
    cron = schedule.cron
    _, _, day, _, weekday = cron.text.split(" ")
    if reading.minute not in cron.minutes or reading.hour not in cron.hours or reading.month not in cron.months:
        return False
    tomorrow = reading.date() + timedelta(days=1) if reading.year < 9999 else reading.date()
    by_date = reading.day in cron.days or (cron.last_day and tomorrow.day == 1)
    number = reading.isoweekday() % 7
    by_weekday = number in cron.weekdays or (number, (reading.day - 1) // 7 + 1) in cron.nth
    return (by_date or by_weekday) if "*" not in (day, weekday) else (by_date and by_weekday)
