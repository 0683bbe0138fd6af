"""Running an atomic job: what its function writes and the end of its run are committed together, or neither is.

The job's row is not touched before the function has returned: heartbeats, progress and people use other connections.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.db import DatabaseError, DataError, IntegrityError, OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_jobs import log
from django_jobs.conf import Conf
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.values import Claimed, Done, Run, Settlement
from django_jobs.exceptions import AtomicBroken, JobsError
from django_jobs.outcomes import Outcome
from django_jobs.registry import JobType
from django_jobs.workers.connections import (
    TransactionLeftOpen,
    answer_timeout,
    broke,
    discard,
    left_open,
    statement_timeout,
)
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.errors import chain
from django_jobs.workers.memory import limited
from django_jobs.workers.refusals import refusing
from django_jobs.workers.watchdog import guarded

# Another transaction was in the way (serialization failure, deadlock): these may be tried again in place.
CONTENTION = ("40001", "40P01")
TRIES_IN_PLACE = 3
FIRST_PAUSE = 0.02
IDLE_TOO_LONG = "25P03"
# What only the settings of a transaction bring about: no permission, no such table, a transaction that may not write.
NOT_ALLOWED = ("42501", "42P01", "25006")
OWN_END = "ended the transaction by a COMMIT or ROLLBACK"
_ENTER = transaction.Atomic.__enter__.__code__
_FORBID = BaseDatabaseWrapper.validate_no_atomic_block.__code__
End = Done | Settlement


class NotStarted(Exception):
    """The function was not called, because its turn did not come in time: another transaction was open all the while."""


class LeaseLost(Exception):
    """The job is no longer this run's, so nothing that it wrote was committed."""


class OutcomeLost(Exception):
    """The run's end was not written, or its COMMIT was not answered: then only the row can tell."""


class IdleTooLong(JobsError):
    """The server ended the transaction of an atomic job, because it was asked nothing for longer than ATOMIC_IDLE."""


class AtomicRun:
    def __init__(
        self,
        engine: Engine,
        settings: Conf,
        claimed: Claimed,
        job_type: JobType,
        watch: Watch,
        stop_asked: Callable[[], bool],
        reported: Callable[[Run], str | None],
        committed: Callable[[Run], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._claimed = claimed
        self._job_type = job_type
        self._watch = watch
        self._stop_asked = stop_asked
        self._reported = reported
        self._tell_committed = committed
        self._limit = statement_timeout(settings.lease)
        self._raw: Any = None
        self._has_hooks = False
        self._mark = ""
        self._began_at = 0.0
        self._broken: AtomicBroken | None = None
        # The last error that the database gave the function.
        self._caught: DatabaseError | None = None
        self._committed = False

    def make(self, call: Callable[[], Any], decide: Callable[[Any], End]) -> End:
        """Call the function and commit the end that `decide` makes of what it returned; return it as stored.

        Whatever is raised, nothing was committed; by OutcomeLost that is not sure.
        """
        for number in range(TRIES_IN_PLACE + 1):
            try:
                return self._try(call, decide)
            except Exception as error:
                pause = FIRST_PAUSE * 3**number * random.uniform(0.5, 1.5)
                if number == TRIES_IN_PLACE or not _is_contention(error) or not self._may_wait(pause):
                    raise
                log.atomic_again(self._claimed, error)
            threading.Event().wait(pause)
        raise AssertionError("unreachable")

    def _may_wait(self, seconds: float = 0.0) -> bool:
        return not self._stop_asked() and time.monotonic() + seconds < self._watch.deadline

    def _try(self, call: Callable[[], Any], decide: Callable[[Any], End]) -> End:
        self._broken, self._caught, self._committed = None, None, False
        with ExitStack() as stack:
            if not stack.enter_context(self._engine.turn(self._may_wait)):
                raise NotStarted
            stack.enter_context(self._engine.for_atomic_run())
            block = transaction.atomic(using=self._engine.alias)
            if not self._engine.begin(block):
                raise NotStarted
            self._began_at = time.monotonic()
            try:
                transaction.on_commit(partial(self._note_commit, stack), using=self._engine.alias)
                outcome = decide(self._called(stack, call))
                self._check(block)
                status = self._complete(stack, outcome)
            except BaseException as error:
                self._roll_back(block, error)
                raise
            self._commit(block)
        return outcome._replace(stored=status)

    def _note_commit(self, stack: ExitStack) -> None:
        # The first hook of the transaction: those of the function must not be hindered by what it was.
        self._committed = True
        stack.close()
        seconds = time.monotonic() - self._began_at
        if seconds >= self._engine.long_atomic:
            log.atomic_is_long(self._claimed, seconds, self._engine.long_atomic_cost)
        if self._has_hooks:
            self._tell_committed(self._claimed.run)

    def _called(self, stack: ExitStack, call: Callable[[], Any]) -> Any:
        """Mark the transaction, and call the function in it."""
        alias = self._engine.alias
        self._raw = self._engine.connection.connection
        left = self._watch.deadline - time.monotonic()
        with guarded(alias, answer_timeout(self._settings.lease)):
            limit = max(left, 0.0) if left < float("inf") else None
            self._mark = self._engine.mark(self._settings.atomic_idle, limit)
        stack.enter_context(refusing(alias, self._note_broken, self._note_caught, self._job_type.other_databases))
        with limited(self._settings.solo_memory):
            called = self._watch.call(call)
        error, called.error = called.error, None
        if error is not None:
            self._refuse_own_end(error)
            self._raise(error)
        if self._broken is not None:
            raise self._broken  # caught by the function
        return called.value

    def _note_broken(self, error: AtomicBroken) -> None:
        self._broken = self._broken or error

    def _note_caught(self, error: DatabaseError) -> None:
        self._caught = error

    def _refuse_own_end(self, error: BaseException) -> None:
        """Raise when the function had ended the transaction before it raised: what it wrote would be written again."""
        connection: Any = self._engine.connection
        # After an error of the connection or of the deadline it was the database that ended it, by a rollback.
        if connection.connection is not self._raw or any(isinstance(link, OperationalError) for link in chain(error)):
            return
        try:
            with guarded(self._engine.alias, answer_timeout(self._settings.lease)):
                ended = self._engine.was_ended(self._mark)
        except DATABASE_ERRORS:
            return
        if ended:
            raise _broken(OWN_END, _REMEDY) from error

    def _raise(self, error: BaseException) -> None:
        """Raise what the function raised, or what that comes from, if it should be said in other words."""
        if self._broken is not None:
            raise self._broken
        if any(_is_forbidden_end(link) for link in chain(error)):
            raise _broken("called transaction.commit(), rollback() or set_autocommit()", _REMEDY) from error
        if any(_is_durable_block(link) for link in chain(error)):
            raise AtomicBroken(
                "The function of an atomic job began a durable block (`transaction.atomic(durable=True)`): it is in a "
                "transaction already, which is committed when it has returned. Leave `durable` or `atomic` out."
            ) from error
        if any(getattr(link, "sqlstate", None) == IDLE_TOO_LONG for link in chain(error)):
            raise IdleTooLong(
                "The server ended the transaction, because the function asked the database nothing for longer than "
                f"ATOMIC_IDLE ({self._settings.atomic_idle:g} s). Do what takes long before or after it, in jobs of "
                "their own, or raise ATOMIC_IDLE."
            ) from error
        raise error

    def _check(self, block: transaction.Atomic) -> None:
        """Raise unless the open transaction is still the one that was begun for the function, and can be committed."""
        connection: Any = self._engine.connection
        others = [alias for alias in left_open() if alias != self._engine.alias]
        if others:
            raise TransactionLeftOpen(others)
        if broke(self._engine.alias, ()):
            raise OutcomeLost("The connection broke while the function ran, which caught the error.")
        if connection.connection is not self._raw or connection.closed_in_transaction or self._raw is None:
            raise _broken("closed the connection of its transaction", "Leave that to the worker.")
        if connection.atomic_blocks[-1:] != [block]:
            raise _broken("left an atomic block open", "Use `with transaction.atomic()`, which ends what it begins.")
        why = self._engine.broken_by()
        if why is None and connection.needs_rollback:
            why = "caught an error inside an atomic block, or asked for a rollback"
        if why is not None:
            raise _broken(why, _REMEDY) from self._caught
        # The server gives it what is left to the deadline: many constraints may have been deferred.
        left = min(max(self._watch.deadline - time.monotonic(), 0.0), self._settings.default_timeout)
        with guarded(self._engine.alias, left + answer_timeout(self._settings.lease)):
            self._engine.check_deferred()

    def _complete(self, stack: ExitStack, outcome: End) -> str:
        """Write the run's end as the last of its transaction; return what the job comes to."""
        run = self._claimed.run
        try:
            stack.enter_context(guarded(self._engine.alias, answer_timeout(self._settings.lease)))
            if not self._engine.is_marked(self._mark, self._limit):
                raise _broken(OWN_END, _REMEDY)
            progress = self._reported(run)
            if progress is not None:
                self._engine.store_progress([(run, progress)])
            if isinstance(outcome, Done):
                statuses = self._engine.complete([outcome])
            else:
                statuses = self._engine.settle([outcome], self._settings.max_uncounted)
        except DATABASE_ERRORS as error:
            if isinstance(error, DataError | IntegrityError) or _is_contention(error):
                raise
            if getattr(error.__cause__, "sqlstate", None) in NOT_ALLOWED and self._engine.probe(self._limit):
                raise _broken(
                    "left settings under which the end of its run cannot be written",
                    "Undo SET LOCAL search_path, ROLE and the like before it returns.",
                ) from error
            raise OutcomeLost("The end of the run could not be written, so all was rolled back.") from error
        if run.id not in statuses:
            raise LeaseLost("The job was no longer this run's when it ended, so all that it wrote was rolled back.")
        return statuses[run.id]

    def _commit(self, block: transaction.Atomic) -> None:
        self._has_hooks = len(self._engine.connection.run_on_commit) > 1
        try:
            block.__exit__(None, None, None)
        except BaseException as error:
            if self._committed:
                log.hook_failed(self._claimed, error)
                return
            if self._is_refused(error):
                raise
            raise OutcomeLost("The COMMIT was not answered.") from error
        if not self._committed:
            raise OutcomeLost("The transaction was rolled back instead of committed.")

    def _is_refused(self, error: BaseException) -> bool:
        """Tell whether the database itself said no to the COMMIT: its word came by a connection that still stands."""
        if not isinstance(error, DatabaseError):
            return False
        return self._engine.connection.vendor == "sqlite" or not self._raw.closed

    def _roll_back(self, block: transaction.Atomic, error: BaseException) -> None:
        connection: Any = self._engine.connection
        if connection.atomic_blocks[-1:] != [block]:
            discard(connection)
            return
        with _leaving(connection), guarded(self._engine.alias, answer_timeout(self._settings.lease)):
            block.__exit__(type(error), error, None)


_REMEDY = (
    "Put a `with transaction.atomic():` around what may fail, inside the `try` that catches its error, and leave COMMIT "
    "and ROLLBACK to the worker."
)


def own_row_changed() -> AtomicBroken:
    return _broken("changed or deleted the row of its own job", "Say how it ends by what it returns or raises.")


def _broken(what: str, remedy: str) -> AtomicBroken:
    return AtomicBroken(f"The function of an atomic job {what}, so it cannot take effect as a whole. {remedy}")


@contextmanager
def _leaving(connection: Any) -> Iterator[None]:
    """Throw a connection away whose transaction cannot even be rolled back: the server does that when it is gone."""
    try:
        yield
    except DATABASE_ERRORS:
        discard(connection)


def _is_contention(error: BaseException) -> bool:
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
