from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.utils import timezone
from django.utils.dateformat import format as formatted
from django.utils.translation import gettext as _

from django_jobs.admin import figures, shown
from django_jobs.admin.overview.asked import Asked
from django_jobs.admin.overview.plots import NARROW, Line, Plot, bar
from django_jobs.measures.counted import Counted, Quantile
from django_jobs.measures.rates import MINUTE, SETTLED_AFTER, Bucket, Rates, rates
from django_jobs.models.stat import CLASSES

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# How far the marks below a plot are apart, in seconds, for each width of its parts.
MARKS = {60: 900, 600: 7200, 1200: 14_400, 7200: 86_400}
# What has run for so many seconds of a part that is not over yet says enough of it.
ENOUGH = 120
QUEUES_OFFERED = 12
# Stands in a plot for what took longer than the last class that has an end.
BEYOND = 2 * CLASSES[-1]


def read(asked: Asked) -> Rates:
    return rates(asked.alias, asked.span, asked.now, asked.queue)


def shown_part(asked: Asked) -> dict[str, Any]:
    found: Rates = asked.found["rates"]
    series = [part for part in found.series if _is_settled(part, found.at)]
    plot = _over(series, asked.span.width)
    return {
        "since": found.since,
        "queues": _choices(asked, found),
        "is_cut": found.is_cut,
        "plots": _plots(plot, series, found.at, asked.span.width),
        "mishaps_plot": plot(
            name="mishaps-plot",
            title=_("Irregularities"),
            about=_("Repeats, lease expirations, lost leases and slots missed."),
            unit=_("number in each %s") % _length(asked.span.width),
            lines=[
                Line(label, kind, [getattr(part.counted, name) for part in series])
                for label, kind, name, _meaning in _mishap_kinds()
            ],
            written=_rate,
            width=NARROW,
        ),
        "totals": _totals(found.total),
        "mishaps": _mishaps(found),
        "is_long": _is_long(found),
        "attempts": _attempts(found.total),
    }


def _choices(asked: Asked, found: Rates) -> list[str]:
    """Return the queues of which one can be chosen: those in which most ended, and the chosen one."""
    busiest = sorted(found.queues, key=lambda name: (-found.queues[name].ended, name))[:QUEUES_OFFERED]
    chosen = {asked.queue} if asked.queue else set()
    names = sorted({*busiest} | chosen)
    return names if len(names) > 1 or chosen else []


def _over(series: list[Bucket], width: int) -> Callable[..., Plot]:
    """Return a maker of plots over the parts of a span."""
    clocks = [(_local(part.since), _local(part.until)) for part in series]
    return partial(
        Plot,
        parts=[f"{formatted(since, 'D Y-m-d H:i')} - {formatted(until, 'H:i')}" for since, until in clocks],
        marks=_marks([since for since, _until in clocks], width),
    )


def _length(width: int) -> str:
    return _("minute") if width == MINUTE else figures.length(timedelta(seconds=width))


def _plots(plot: Callable[..., Plot], series: list[Bucket], at: datetime, width: int) -> list[Plot]:
    of_each = _("in each %s") % _length(width)
    averaged = _("runs a minute, on average over %s") % _length(width)
    ended = [(_("done"), "good", "done"), (_("to run again"), "wait", "retried"), (_("failed"), "bad", "unsuccessful")]
    return [
        plot(
            name="throughput",
            title=_("Throughput"),
            about=_("Runs that ended."),
            unit=_("runs a minute") if width == MINUTE else averaged,
            lines=[Line(label, kind, _a_minute(series, at, name)) for label, kind, name in ended],
            written=_rate,
        ),
        plot(
            name="failures",
            title=_("Failure and retry rate"),
            about=_("Jobs that failed of those that ended, and runs that have to be tried again of all."),
            unit=_("share of those that ended %s") % of_each,
            lines=[
                Line(_("failed"), "bad", [part.counted.failure_rate for part in series]),
                Line(_("to run again"), "wait", [part.counted.retry_rate for part in series]),
            ],
            written=figures.share,
            is_of_counts=False,
            at_least=0.01,
        ),
        plot(
            name="waits",
            title=_("Wait"),
            about=_("How long jobs waited from when they were due until they were claimed."),
            unit=_("at most, %s") % of_each,
            lines=_durations(series, "wait"),
            written=_bound,
            scaled=figures.seconds,
            is_logarithmic=True,
        ),
        plot(
            name="runs",
            title=_("Run time"),
            about=_("How long runs took."),
            unit=_("at most, %s") % of_each,
            lines=_durations(series, "run"),
            written=_bound,
            scaled=figures.seconds,
            is_logarithmic=True,
        ),
    ]


def _a_minute(series: list[Bucket], at: datetime, name: str) -> list[float | None]:
    """Return how many there were in each part for a minute of it, or of what of it has passed."""
    return [
        getattr(part.counted, name) * MINUTE / (min(part.until, at) - part.since).total_seconds() for part in series
    ]


def _durations(series: list[Bucket], of: str) -> list[Line]:
    return [Line(name, name, [_at_most(part.counted, of, share) for part in series]) for name, share in SHARES.items()]


def _is_settled(part: Bucket, at: datetime) -> bool:
    """Tell whether a part is over and stored, or has gone on for long enough to say something."""
    return part.until <= at - SETTLED_AFTER or (at - part.since).total_seconds() >= ENOUGH


def _at_most(counted: Counted, of: str, share: float) -> float | None:
    """Return the end of a percentile's class; of the last, which has none, a value beyond the plot."""
    found: Quantile | None = getattr(counted, of)(share)
    if found is None:
        return None
    return BEYOND if found.high is None else found.high


def _bound(value: float | None) -> str:
    if value is None:
        return shown.NOTHING
    return figures.quantile(Quantile(CLASSES[-1], None) if value == BEYOND else Quantile(0.0, value))


def _rate(value: float | None) -> str:
    return shown.NOTHING if value is None else figures.rate(value)


def _local(moment: datetime) -> datetime:
    return moment.astimezone(timezone.get_current_timezone())


def _marks(starts: list[datetime], width: int) -> dict[int, str]:
    """Return what stands below a plot: the clock where it is round or, of days, where one begins."""
    every, found = MARKS[width], {}
    for place, start in enumerate(starts):
        if (start.hour * 3600 + start.minute * 60) % every < width:
            found[place] = formatted(start, "D j" if every >= 86_400 else "H:i")
    return found


def _totals(total: Counted) -> list[tuple[str, str, str]]:
    """Return label, number and what it is a share of."""
    return [
        (_("done"), figures.number(total.done), ""),
        (_("failed"), figures.number(total.unsuccessful), figures.share(total.failure_rate)),
        (_("to run again"), figures.number(total.retried), figures.share(total.retry_rate)),
        (_("cancelled"), figures.number(total.cancelled), ""),
        (_("stopped"), figures.number(total.stopped), ""),
        (_("runs in all"), figures.number(total.ended), ""),
    ]


def _mishap_kinds() -> list[tuple[str, str, str, str]]:
    """Return label, kind of line, name and meaning of what goes wrong around runs: none of it is an error of a job."""
    return [
        (_("repeats"), "wait", "repeats", _("runs after one that was lost")),
        (
            _("lease expirations"),
            "bad",
            "lease_expirations",
            _("runs that were taken back, since nobody extended their lease"),
        ),
        (_("lost leases"), "p50", "lost_leases", _("ends that came too late, and were not stored")),
        (_("slots missed"), "p95", "slots_missed", _("of schedules, found when they were over")),
    ]


def _mishaps(found: Rates) -> list[dict[str, str]]:
    hours = (found.at - found.since).total_seconds() / 3600
    return [
        {
            "label": label,
            "kind": kind,
            "number": figures.number(number := getattr(found.total, name)),
            "an_hour": figures.rate(number / hours) if _is_long(found) else "",
            "meaning": meaning,
        }
        for label, kind, name, meaning in _mishap_kinds()
    ]


def _is_long(found: Rates) -> bool:
    """Tell whether how often something happened in an hour says more than how often in all."""
    return found.at - found.since > timedelta(hours=1)


def _attempts(total: Counted) -> list[dict[str, Any]]:
    """Return in which attempt jobs ended, up to the last one that any needed."""
    every = sum(total.attempts)
    last = max((place for place, count in enumerate(total.attempts) if count), default=-1)
    return [
        {
            "attempt": _("%d or later") % (place + 1) if place + 1 == len(total.attempts) else str(place + 1),
            "jobs": figures.number(count),
            "share": figures.share(count / every),
            "bar": bar(count / every, "good" if place == 0 else "wait"),
        }
        for place, count in enumerate(total.attempts[: last + 1])
    ]
