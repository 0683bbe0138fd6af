"""What a handler may say about its run instead of returning a result or raising an error."""

from __future__ import annotations

from datetime import timedelta

from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.texts import text as _

# Ten years: a longer wait is a mistake, and keeps every stored time far from the databases' limits.
LONGEST_DELAY = 315_360_000.0


def seconds(value: object, name: str) -> float:
    """Return a duration given as seconds or timedelta in seconds, or raise naming the value and `name`."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidJobType(f"{name} is {shown(value)}; give seconds as a number, or a timedelta.")
    if not 0 <= value <= LONGEST_DELAY:  # also true of NaN
        words = {"name": name, "value": shown(value), "most": f"{LONGEST_DELAY:.0f}"}
        raise InvalidJob(_("%(name)s is %(value)s; give seconds from 0 to %(most)s (ten years).", **words))
    return float(value)


class Outcome(BaseException):
    """The base of Retry, Snooze, Fail and Cancel: return one from a handler, or raise it.

    Derived from BaseException, so that an `except Exception` in a handler does not swallow it.
    """


class _Delayed(Outcome):
    def __init__(self, delay: float | timedelta | None = None) -> None:
        self.delay = None if delay is None else seconds(delay, f"{type(self).__name__}(delay)")
        super().__init__(delay)


class Retry(_Delayed):
    """Count this run as a failed attempt and run again after `delay` seconds (default: the job's backoff)."""

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(delay)
        self.reason = str(reason)


class Snooze(_Delayed):
    """Run again after `delay` seconds without counting this run as an attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        if delay is None:
            raise InvalidJobType("Snooze needs a delay: seconds, or a timedelta.")
        super().__init__(delay)


class _Final(Outcome):
    def __init__(self, reason: str = "") -> None:
        self.reason = str(reason)
        super().__init__(reason)


class Fail(_Final):
    """End the job as failed at once, whatever attempts are left; it joins the dead-letter list."""


class Cancel(_Final):
    """End the job as cancelled at once."""
