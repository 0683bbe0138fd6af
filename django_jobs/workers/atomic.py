"""Running an atomic job: what its function writes and the end of its run are committed together, or neither is.

The job's row is not touched before the function has returned: heartbeats, progress and people use other connections.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.db import DatabaseError, DataError, IntegrityError, OperationalError, transaction

from django_jobs import log, notify
from django_jobs.conf import Conf
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.values import Claimed, Done, Run, Settlement
from django_jobs.exceptions import AtomicBroken
from django_jobs.registry import JobType
from django_jobs.workers.atomic_errors import (
    NOT_ALLOWED,
    OWN_END,
    REMEDY,
    LeaseLost,
    NotStarted,
    OutcomeLost,
    broken,
    in_other_words,
    is_contention,
)
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

TRIES_IN_PLACE = 3
FIRST_PAUSE = 0.02
End = Done | Settlement


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
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._claimed = claimed
        self._job_type = job_type
        self._watch = watch
        self._stop_asked = stop_asked
        self._reported = reported
        self._limit = statement_timeout(settings.lease)
        self._raw: Any = None
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
                if number == TRIES_IN_PLACE or not is_contention(error) or not self._may_wait(pause):
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
            raise broken(OWN_END, REMEDY) from error

    def _raise(self, error: BaseException) -> None:
        if self._broken is not None:
            raise self._broken
        said = in_other_words(error, self._settings.atomic_idle)
        if said is error:
            raise error
        raise said from error

    def _check(self, block: transaction.Atomic) -> None:
        """Raise unless the open transaction is still the one that was begun for the function, and can be committed."""
        connection: Any = self._engine.connection
        others = [alias for alias in left_open() if alias != self._engine.alias]
        if others:
            raise TransactionLeftOpen(others)
        if broke(self._engine.alias, ()):
            raise OutcomeLost("The connection broke while the function ran, which caught the error.")
        if connection.connection is not self._raw or connection.closed_in_transaction or self._raw is None:
            raise broken("closed the connection of its transaction", "Leave that to the worker.")
        if connection.atomic_blocks[-1:] != [block]:
            raise broken("left an atomic block open", "Use `with transaction.atomic()`, which ends what it begins.")
        why = self._engine.broken_by()
        if why is None and connection.needs_rollback:
            why = "caught an error inside an atomic block, or asked for a rollback"
        if why is not None:
            raise broken(why, REMEDY) from self._caught
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
                raise broken(OWN_END, REMEDY)
            progress = self._reported(run)
            if progress is not None:
                self._engine.store_progress([(run, progress)])
            if isinstance(outcome, Done):
                statuses = self._engine.complete([outcome])
            else:
                statuses = self._engine.settle([outcome], self._settings.max_uncounted)
                notify.ready_again(self._engine, [outcome], statuses)
        except DATABASE_ERRORS as error:
            if isinstance(error, DataError | IntegrityError) or is_contention(error):
                raise
            if getattr(error.__cause__, "sqlstate", None) in NOT_ALLOWED and self._engine.probe(self._limit):
                raise broken(
                    "left settings under which the end of its run cannot be written",
                    "Undo SET LOCAL search_path, ROLE and the like before it returns.",
                ) from error
            raise OutcomeLost("The end of the run could not be written, so all was rolled back.") from error
        if run.id not in statuses:
            raise LeaseLost("The job was no longer this run's when it ended, so all that it wrote was rolled back.")
        return statuses[run.id]

    def _commit(self, block: transaction.Atomic) -> None:
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


@contextmanager
def _leaving(connection: Any) -> Iterator[None]:
    """Throw a connection away whose transaction cannot even be rolled back: the server does that when it is gone."""
    try:
        yield
    except DATABASE_ERRORS:
        discard(connection)
