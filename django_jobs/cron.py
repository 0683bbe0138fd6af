"""Cron expressions: which minutes of the calendar they name. No zone, no clock; the rules are those of docs/schedules.md."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

from django_jobs.exceptions import JobsError, shown
from django_jobs.texts import Text, ngettext, of
from django_jobs.texts import text as _

LONGEST = 255

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ITEM = re.compile(r"(?:\*|([a-zA-Z0-9]+)(?:-([a-zA-Z0-9]+))?)(?:/([0-9]+))?")
_NTH = re.compile(r"([a-zA-Z0-9]+)#([1-5])")
# The calendar repeats itself after so many years.
_CYCLE = 400


class BadExpression(JobsError, ValueError):
    """A cron expression that cannot be used."""

    def __init__(self, expression: object, problem: str) -> None:
        super().__init__(_("Cron expression %(value)s: %(problem)s.", value=shown(expression), problem=problem))


_FORMS = _("*, n, a-b or a step as in */5")


@dataclass(frozen=True, slots=True)
class _Field:
    name: Text
    least: int
    # The most that may be written, and the most that `*` and `n/step` reach: 7 and 6 for Sunday.
    most: int
    last: int
    names: tuple[str, ...] = ()
    forms: Text = _FORMS

    def number(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.least
        if text.isdecimal() and self.least <= int(text) <= self.most:
            return int(text)
        words = {"value": shown(text), "field": self.name, "least": self.least, "most": self.most}
        if not self.names:
            raise ValueError(_("%(value)s is no %(field)s; give a number from %(least)d to %(most)d", **words))
        raise ValueError(
            _(
                "%(value)s is no %(field)s; give a number from %(least)d to %(most)d or a name (%(first)s to %(last)s)",
                **words, first=self.names[0], last=self.names[-1],
            )
        )  # fmt: skip

    def numbers(self, item: str) -> Sequence[int]:
        match = _ITEM.fullmatch(item)
        if match is None:
            words = {"value": shown(item), "field": self.name, "forms": self.forms}
            raise ValueError(_("%(value)s is not understood in the %(field)s field; write %(forms)s", **words))
        first, end, step = match.groups()
        start = self.least if first is None else self.number(first)
        if end is not None:
            stop = self.number(end)
        else:
            stop = start if first is not None and step is None else self.last
        if start > stop:
            words = {"value": shown(item), "field": self.name, "sunday": ""}
            if self.last < self.most:
                words["sunday"] = _(" (Sunday at the end of a range is 7, at its start 0)")
            raise ValueError(
                _("%(value)s runs backwards in the %(field)s field; write it as two ranges%(sunday)s", **words)
            )
        if step is not None and int(step) == 0:
            words = {"value": shown(item), "field": self.name}
            raise ValueError(_("%(value)s in the %(field)s field has a step of 0; the least step is 1", **words))
        return range(start, stop + 1, int(step or 1))


_MINUTE = _Field(_("minute"), 0, 59, 59)
_HOUR = _Field(_("hour"), 0, 23, 23)
_DAY = _Field(_("day of month"), 1, 31, 31, (), _("*, n, a-b, a step as in */5, or L for the last day of the month"))
_MONTH = _Field(_("month"), 1, 12, 12, _MONTHS)
_WEEKDAY = _Field(
    _("day of week"), 0, 7, 6, _WEEKDAYS, _("*, n, a-b, a step as in */2, or d#n for the n-th d of the month (1 to 5)")
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression, made by `Cron.parse`: the minutes of the calendar that it names.

    A *reading* is a naive datetime in whole minutes, what a clock on the wall shows. `slots.CronSlots` makes
    instants of them.
    """

    text: str
    """The expression as it was given, with single spaces."""
    follows_real_time: bool
    """Whether the hour field starts with `*`: then clock changes neither move nor repeat nor swallow a run."""
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """Days of the week, 0 for Sunday."""
    nth: frozenset[tuple[int, int]]
    """`d#n`: (day of the week, which of the month)."""
    last_day: bool
    """`L`: the last day of the month."""
    either: bool
    """Whether both day fields are restricted, so that a day matches when one of them does."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Return the parsed expression, or raise `BadExpression`, which says the value, the field and the remedy."""
        try:
            found = cls(**_parsed(text))
            found._refuse_never()
        except ValueError as error:
            raise BadExpression(text, of(error)) from None
        return found

    def readings(self, start: datetime) -> Iterator[datetime]:
        """Yield the readings from a naive datetime on, that one included, up to the end of the calendar."""
        if start.second or start.microsecond:
            try:
                start = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
            except OverflowError:
                return iter(())
        return self._walk(start, False)

    def readings_back(self, end: datetime) -> Iterator[datetime]:
        """Yield the readings up to a naive datetime, that one included, the latest first, down to year 1."""
        return self._walk(end, True)

    def shortest_gap(self) -> timedelta:
        """Return the shortest time between two readings, on a calendar without clock changes."""
        times = [60 * hour + minute for hour in self.hours for minute in self.minutes]
        within = min((late - early for early, late in pairwise(times)), default=None)
        over_night = times[0] - times[-1]
        if within is not None and within <= 1440 + over_night:
            return timedelta(minutes=within)
        across = timedelta(days=self._shortest_days(), minutes=over_night)
        return across if within is None else min(across, timedelta(minutes=within))

    def _refuse_never(self) -> None:
        # A weekday, also an n-th one, comes in every month sooner or later; a date only where the month is long enough.
        if not self.either and not self.last_day and all(self.days[0] > _LENGTHS[month - 1] for month in self.months):
            raise ValueError(
                _(
                    "day %d never comes in the months of the month field; change the day of month or the month",
                    self.days[0],
                )
            )

    def _walk(self, bound: datetime, back: bool) -> Iterator[datetime]:
        edge = bound.date()
        for day in self._dates(edge, back):
            at_edge = day == edge
            for hour in _from(self.hours, bound.hour if at_edge else None, back):
                least = bound.minute if at_edge and hour == bound.hour else None
                for minute in _from(self.minutes, least, back):
                    yield datetime(day.year, day.month, day.day, hour, minute)

    def _dates(self, bound: date, back: bool) -> Iterator[date]:
        for year in range(bound.year, MINYEAR - 1, -1) if back else range(bound.year, MAXYEAR + 1):
            at_year = year == bound.year
            for month in _from(self.months, bound.month if at_year else None, back):
                edge = bound.day if at_year and month == bound.month else None
                for day in _from(self._days_of(*monthrange(year, month)), edge, back):
                    yield date(year, month, day)

    def _days_of(self, first_weekday: int, length: int) -> list[int]:
        found = []
        days, weekdays = set(self.days), set(self.weekdays)
        for day in range(1, length + 1):
            # monthrange counts from Monday, cron from Sunday.
            weekday = (first_weekday + day) % 7
            by_date = day in days or (self.last_day and day == length)
            by_weekday = weekday in weekdays or (weekday, (day + 6) // 7) in self.nth
            if (by_date or by_weekday) if self.either else (by_date and by_weekday):
                found.append(day)
        return found

    def _shortest_days(self) -> int:
        days_of = cache(self._days_of)
        kinds: dict[tuple[int, bool], list[int]] = {}
        shortest, since = _CYCLE * 366, _CYCLE * 366
        # Longer than the cycle by what may pass between its last reading and the first one of the next.
        for year in range(2000, 2000 + _CYCLE + 41):
            kind = (monthrange(year, 1)[0], isleap(year))
            if kind not in kinds:
                start = date(year, 1, 1).toordinal()
                firsts = [(date(year, month, 1).toordinal() - start, monthrange(year, month)) for month in self.months]
                kinds[kind] = [first + day - 1 for first, shape in firsts for day in days_of(*shape)]
                shortest = min([shortest, *(late - early for early, late in pairwise(kinds[kind]))])
            if days := kinds[kind]:
                shortest = min(shortest, since + days[0])
                since = -days[-1]
            if shortest == 1:
                break
            since += 366 if kind[1] else 365
        return shortest


def _from(values: Sequence[int], bound: int | None, back: bool) -> Sequence[int]:
    if bound is None:
        return values[::-1] if back else values
    if back:
        return [value for value in reversed(values) if value <= bound]
    return [value for value in values if value >= bound]


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError(_("give text such as '30 2 * * *'"))
    if len(text) > LONGEST:
        long = {"number": f"{len(text):,}", "most": LONGEST}
        raise ValueError(_("it has %(number)s characters; at most %(most)d are read", **long))
    if not text.isascii():
        raise ValueError(_("give ASCII digits, letters and signs only"))
    words = [word for word in re.split(r"[ \t]+", text.strip(" \t\r\n")) if word]
    plain = " ".join(words)
    fields = _ALIASES.get(plain.lower(), plain).split(" ")
    if plain.startswith("@") and plain.lower() not in _ALIASES:
        raise ValueError(_("this name is not known; give five fields or one of %s", ", ".join(_ALIASES)))
    if len(fields) != 5 or not plain:
        count = len(words)
        raise ValueError(
            ngettext(
                "it has %(number)d field; give five: minute, hour, day of month, month, day of week",
                "it has %(number)d fields; give five: minute, hour, day of month, month, day of week",
                count,
                number=count,
            )
        )
    return {"text": plain, **_sets(*fields)}


def _sets(minute: str, hour: str, day: str, month: str, weekday: str) -> dict[str, Any]:
    days = [item for item in day.split(",") if item not in ("L", "l")]
    weekdays, nth = [], set()
    for item in weekday.split(","):
        if match := _NTH.fullmatch(item):
            nth.add((_WEEKDAY.number(match[1]) % 7, int(match[2])))
        else:
            weekdays.append(item)
    return {
        "follows_real_time": hour.startswith("*"),
        "minutes": _numbers(_MINUTE, minute.split(",")),
        "hours": _numbers(_HOUR, hour.split(",")),
        "days": _numbers(_DAY, days),
        "months": _numbers(_MONTH, month.split(",")),
        "weekdays": tuple(sorted({number % 7 for number in _numbers(_WEEKDAY, weekdays)})),
        "nth": frozenset(nth),
        "last_day": len(days) < len(day.split(",")),
        "either": day != "*" and weekday != "*",
    }


def _numbers(field: _Field, items: list[str]) -> tuple[int, ...]:
    return tuple(sorted({number for item in items for number in field.numbers(item)}))
