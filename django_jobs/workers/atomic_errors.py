"""How a run of an atomic job can go wrong, in our own words."""

from __future__ import annotations

import traceback

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_jobs.exceptions import AtomicBroken, JobsError
from django_jobs.outcomes import Outcome
from django_jobs.workers.errors import chain

# Another transaction was in the way (serialization failure, deadlock): these may be tried again in place.
CONTENTION = ("40001", "40P01")
IDLE_TOO_LONG = "25P03"
# What only the settings of a transaction bring about: no permission, no such table, a transaction that may not write.
NOT_ALLOWED = ("42501", "42P01", "25006")
OWN_END = "ended the transaction by a COMMIT or ROLLBACK"
_ENTER = transaction.Atomic.__enter__.__code__
_FORBID = BaseDatabaseWrapper.validate_no_atomic_block.__code__
REMEDY = (
    "Put a `with transaction.atomic():` around what may fail, inside the `try` that catches its error, and leave COMMIT "
    "and ROLLBACK to the worker."
)


class NotStarted(Exception):
    """The function was not called, because its turn did not come in time: another transaction was open all the while."""


class LeaseLost(Exception):
    """The job is no longer this run's, so nothing that it wrote was committed."""


class OutcomeLost(Exception):
    """The run's end was not written, or its COMMIT was not answered: then only the row can tell."""


class IdleTooLong(JobsError):
    """The server ended the transaction of an atomic job, because it was asked nothing for longer than ATOMIC_IDLE."""


def own_row_changed() -> AtomicBroken:
    return broken("changed or deleted the row of its own job", "Say how it ends by what it returns or raises.")


def broken(what: str, remedy: str) -> AtomicBroken:
    return AtomicBroken(f"The function of an atomic job {what}, so it cannot take effect as a whole. {remedy}")


def in_other_words(error: BaseException, idle: float) -> BaseException:
    """Return what a function raised or, if that says it better, what it comes from; `idle` is ATOMIC_IDLE."""
    if any(_is_forbidden_end(link) for link in chain(error)):
        return broken("called transaction.commit(), rollback() or set_autocommit()", REMEDY)
    if any(_is_durable_block(link) for link in chain(error)):
        return AtomicBroken(
            "The function of an atomic job began a durable block (`transaction.atomic(durable=True)`): it is in a "
            "transaction already, which is committed when it has returned. Leave `durable` or `atomic` out."
        )
    if any(getattr(link, "sqlstate", None) == IDLE_TOO_LONG for link in chain(error)):
        return IdleTooLong(
            "The server ended the transaction, because the function asked the database nothing for longer than "
            f"ATOMIC_IDLE ({idle:g} s). Do what takes long before or after it, in jobs of "
            "their own, or raise ATOMIC_IDLE."
        )
    return error


def is_contention(error: BaseException) -> bool:
    if isinstance(error, Outcome | JobsError | LeaseLost | OutcomeLost):
        return False
    return any(getattr(link, "sqlstate", None) in CONTENTION for link in chain(error))


def _is_forbidden_end(error: BaseException) -> bool:
    """Tell whether Django refused to commit, roll back or change autocommit inside a transaction."""
    return isinstance(error, TransactionManagementError) and _raised_in(error) is _FORBID


def _is_durable_block(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and _raised_in(error) is _ENTER


def _raised_in(error: BaseException) -> object:
    """Return the code that raised an error; Django has no other sign of some of its own."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_code if frames else None
