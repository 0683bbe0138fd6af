"""How numbers, shares and durations are written on pages."""

from __future__ import annotations

from datetime import timedelta

from django.utils.translation import gettext as _

from django_jobs import texts
from django_jobs.measures.counted import Quantile

NOTHING = "–"  # noqa: RUF001 - a dash of the width of a digit


def number(value: float, places: int = 0) -> str:
    """Return a number with its thousands apart, as the reader's language has it."""
    return texts.number(value, places).translated()


def capped(value: int, is_capped: bool) -> str:
    """Return a count, or that it is this many or more."""
    return _("%s or more") % number(value) if is_capped else number(value)


def rate(value: float) -> str:
    """Return how often something happens: what happens seldom is not said to be nothing."""
    if 0 < value < 0.05:
        return _("under %s") % number(0.1, 1)
    return number(value, 0 if value >= 10 or value == int(value) else 1)


def share(value: float | None) -> str:
    """Return a share as a percentage: one that is not nothing is not said to be."""
    if value is None:
        return NOTHING
    if 0 < value < 0.0005:
        return _("under %s %%") % number(0.1, 1)
    return f"{number(value * 100, 0 if value in (0, 1) or 0.0995 <= value < 0.995 else 1)} %"


def seconds(value: float | None) -> str:
    """Return a duration with about two digits."""
    if value is None:
        return NOTHING
    if value < 0.9995:
        return _("%s ms") % _two_digits(value * 1000)
    if value < 9.95:
        return _("%s s") % _two_digits(value)
    return length(timedelta(seconds=value))


def length(value: timedelta) -> str:
    """Return a duration in its largest unit, as `explain()` has it."""
    return texts.span(value).translated()


def _two_digits(value: float) -> str:
    return number(value, 1 if value < 9.95 and value != int(value) else 0)


def quantile(found: Quantile | None) -> str:
    """Return a percentile by the end of its class, which is all that is known; of the last one, where that begins."""
    if found is None:
        return NOTHING
    return f"≤ {seconds(found.high)}" if found.high is not None else _("over %s") % seconds(found.low)


def bytes_(value: int) -> str:
    """Return a size in the largest unit that it fills."""
    size, units = float(value), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1024 and unit != "TB":
        size, unit = size / 1024, next(units)
    return f"{number(size, 1 if size < 10 and unit != 'B' else 0)} {unit}"
