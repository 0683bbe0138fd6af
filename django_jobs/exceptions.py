from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from types import FunctionType, NoneType
from uuid import UUID

from django_jobs.texts import text as _

# What has a repr() that is to be trusted: that of a model or a queryset may send a query.
_PLAIN = (str, bytes, int, float, complex, date, time, timedelta, Decimal, UUID, tzinfo, type, FunctionType, NoneType)


def shown(value: object) -> str:
    """Return a value as error messages show it: plain values by a short repr(), others by their type, times as text."""
    if isinstance(value, datetime):
        return str(value)
    items: Iterable[object] = (value,)
    if isinstance(value, list | tuple | set | frozenset):
        items = value
    elif isinstance(value, dict):
        items = chain(value, value.values())
    if not all(isinstance(item, _PLAIN) for item in items):
        return f"<{type(value).__name__}>"
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


class JobsError(Exception):
    """The base of every error that django_jobs raises. `fault`: of some, the message without what came of it."""

    fault: str = ""


class InvalidJob(JobsError, ValueError):
    """A job, an option or an argument has a value that cannot be used; nothing was written."""


class InvalidJobType(JobsError, TypeError):
    """A job, an option or an argument is of a kind that cannot be used; nothing was written."""


class EnqueueTimeout(JobsError):
    """Another transaction held the same idempotency key for longer than ENQUEUE_TIMEOUT."""

    def __init__(self, key: str | None, seconds: float) -> None:
        which = _("one of the idempotency keys") if key is None else _("the idempotency key %r", key)
        super().__init__(
            _(
                "Another transaction holds %(which)s and did not end within %(seconds)g s (ENQUEUE_TIMEOUT). Nothing was "
                "enqueued; try again when that transaction is over.",
                which=which, seconds=seconds,
            )
        )  # fmt: skip


class EffectTimeout(EnqueueTimeout):
    """Another transaction held the same key of `once` for longer than ENQUEUE_TIMEOUT."""

    def __init__(self, key: str, seconds: float) -> None:
        JobsError.__init__(
            self,
            f"Another transaction holds the key {key!r} of once() and did not end within {seconds:g} s (ENQUEUE_TIMEOUT). "
            "Nothing was written; try again when that transaction is over.",
        )


class IdempotencyConflict(JobsError):
    """The idempotency key belongs to a job of another type or with other arguments."""

    def __init__(self, key: str, job_id: int | None, held: str, asked: str, place: str = "") -> None:
        super().__init__(
            f"{place}The idempotency key {key!r} belongs to {held}; it cannot also stand for {asked}. "
            "Use another key for another call."
        )
        # None when it is another call of the same enqueue_many that has the key.
        self.job_id = job_id


class StateConflict(JobsError):
    """What was asked for cannot be done to a job in the state that it is in."""


class WaitTimeout(JobsError, TimeoutError):
    """A job had not ended when the time to wait for it was over."""


class AtomicBroken(JobsError):
    """An atomic job cannot take effect exactly once, by what its function does; the job is failed at once."""


class DeadlinePassed(BaseException):
    """Raised inside a handler that goes on for seconds after its deadline.

    Derived from BaseException, so that an `except Exception` in a handler does not swallow it.
    """

    def __init__(self, *said: object) -> None:
        super().__init__(*(said or ("The run went on after its deadline.",)))


class ConfigurationError(JobsError):
    """A setting, an option of a command or the kind of database cannot be used; nothing was started or written."""


class JobDoesNotExist(JobsError):
    """No job has this id."""
