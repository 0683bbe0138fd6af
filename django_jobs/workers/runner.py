"""Running one job: calling its function and deciding how the run ended. Nothing here writes to the jobs' table."""

from __future__ import annotations

import inspect
import time
from asyncio import CancelledError
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import InterfaceError, InternalError, OperationalError, connections, reset_queries

from django_jobs import payload, registry
from django_jobs.conf import Conf
from django_jobs.context import Context
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import (
    CONNECTION_BROKE,
    DATABASE_AWAY,
    DEADLINE,
    OUT_OF_MEMORY,
    OUTCOME_LOST,
    STOPPED,
)
from django_jobs.engines.idle import may_be_dead
from django_jobs.engines.values import Claimed, Counts, Done, Run, Settlement, released
from django_jobs.exceptions import AtomicBroken, InvalidJobType, JobsError
from django_jobs.outcomes import Cancel, Fail, Outcome, Retry, Snooze
from django_jobs.queue.history import entry, late
from django_jobs.registry import JobType
from django_jobs.workers.atomic import AtomicRun, IdleTooLong, LeaseLost, NotStarted, OutcomeLost
from django_jobs.workers.calling import call
from django_jobs.workers.connections import (
    TransactionLeftOpen,
    answer_timeout,
    broke,
    connect_failed,
    connect_timeout,
    discard_all,
    discard_open_transactions,
)
from django_jobs.workers.connections import watch as watch_connections
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.errors import chain, describe, full_text
from django_jobs.workers.memory import limited, too_little
from django_jobs.workers.watchdog import NoAnswer, guarded

# Seconds before a job that was lost with its database or connection is tried again.
LOSS_PAUSE = 5.0
# Within it, a process whose database was away has asked again: see Outage.
JUST_NOW_SECONDS = 3.0
IDLE_BEFORE_CHECK = 5.0
QUERY_CANCELED = "57014"
# What an unreachable database or, by the last, one that cannot be written makes of a handler's statement.
_DOUBTFUL = (OperationalError, InterfaceError, InternalError)


class Runner:
    """Runs jobs on one thread."""

    def __init__(
        self,
        engine: Engine,
        settings: Conf,
        label: str,
        reported: Callable[[Run], str | None] = lambda run: None,
        committed: Callable[[Run], None] = lambda run: None,
    ) -> None:
        """`reported` returns the progress of a run that is not stored yet; `committed` is told of an atomic run's end
        before what it hooked to its COMMIT is called."""
        self._committed = committed
        self._engine = engine
        self._reported = reported
        self._settings = settings
        self._label = label
        self._used_at = time.monotonic()

    def run(self, claimed: Claimed, context: Context, watch: Watch | None = None) -> Done | Settlement:
        """Call the function; return how the run ended, whatever the function does."""
        started = time.monotonic()
        self._check_connections(started)
        watch = watch or Watch()
        job_type = registry.find(claimed.type)
        failed = False
        try:
            if job_type is None:
                raise JobsError(f"No function is registered as {claimed.type!r}.")
            called = self._called_atomically if job_type.atomic else self._called
            ended, failed = called(claimed, job_type, context, started, watch)
        except BaseException as error:
            failed = True
            ended = self._raised(claimed, job_type, error, started)
        left_open = discard_open_transactions()
        if watch.passed:
            discard_all()  # a statement of theirs was cancelled, or still may be
        elif failed:
            # What it did to its sessions, such as SET, must not make the next job fail as well.
            connections.close_all()
        if left_open and not failed and ended.stored is None:
            ended = self._raised(claimed, job_type, TransactionLeftOpen(left_open), started)
        self._used_at = time.monotonic()
        return ended

    def _called(
        self, claimed: Claimed, job_type: JobType, context: Context, started: float, watch: Watch
    ) -> tuple[Done | Settlement, bool]:
        """Call the function; return how the run ended, and whether by an error."""
        with limited(self._settings.solo_memory):
            called = watch.call(lambda: call(job_type, claimed, context, watch))
        error, called.error = called.error, None
        if error is None:
            return self._returned(claimed, job_type, called.value, started), False
        if isinstance(error, Outcome):
            return self._raised(claimed, job_type, error, started), False
        return self._failed(claimed, job_type, error, started, watch), True

    def _called_atomically(
        self, claimed: Claimed, job_type: JobType, context: Context, started: float, watch: Watch
    ) -> tuple[Done | Settlement, bool]:
        """Call the function in a transaction that is committed with the end of the run, as `_called` does without."""
        run = AtomicRun(
            self._engine,
            self._settings,
            claimed,
            job_type,
            watch,
            lambda: context.should_stop,
            self._reported,
            self._committed,
        )
        try:
            function = partial(call, job_type, claimed, context, watch)
            return run.make(function, lambda value: self._returned(claimed, job_type, value, started)), False
        except NotStarted:
            return released(claimed.run), False
        except Outcome as outcome:
            return self._raised(claimed, job_type, outcome, started), False
        except (LeaseLost, OutcomeLost, NoAnswer) as error:
            return self._lost_end(claimed, job_type, error, started, watch), True
        except AtomicBroken as error:
            return self._settled(claimed, "failed", "end", "failed", error, started), True
        except IdleTooLong as error:
            return self._attempt(claimed, job_type, error, started), True
        except BaseException as error:
            return self._failed(claimed, job_type, error, started, watch), True

    def _lost_end(
        self, claimed: Claimed, job_type: JobType, error: Exception, started: float, watch: Watch
    ) -> Settlement:
        """Decide what it means that an atomic run's end was not written, or perhaps not: the writer asks the row."""
        if isinstance(error, LeaseLost):
            cause = OUTCOME_LOST
        elif self._was_away():
            cause = DATABASE_AWAY
        elif isinstance(error, NoAnswer) or broke(self._engine.alias, chain(error)):
            cause = CONNECTION_BROKE
        elif watch.passed:  # by a cancellation that was meant for the function
            return self._attempt(claimed, job_type, error, started, None, DEADLINE)
        else:
            cause = OUTCOME_LOST
        return self._settled(claimed, "ready", "loss", cause, error, started, delay=LOSS_PAUSE)

    def _check_connections(self, now: float) -> None:
        idle = now - self._used_at > IDLE_BEFORE_CHECK
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and (idle or connection.errors_occurred or may_be_dead(connection)):
                with guarded(connection.alias, answer_timeout(self._settings.lease)):
                    connection.close_if_unusable_or_obsolete()
                    if connection.connection is not None and not connection.is_usable():
                        connection.close()
            if connection.queries_logged:
                reset_queries()
        watch_connections(self._engine.alias)

    def _returned(self, claimed: Claimed, job_type: JobType, value: Any, started: float) -> Done | Settlement:
        if isinstance(value, Outcome):
            return self._outcome(claimed, job_type, value, started)
        if isinstance(value, type) and issubclass(value, Outcome):
            raise InvalidJobType(f"The handler returned the class {value.__name__}; return {value.__name__}(...).")
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidJobType(
                "The handler returned a coroutine, so nothing was run; make it an `async def`, and await in it."
            )
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise InvalidJobType("The handler returned a generator, so nothing was run; return a list.")
        return Done(claimed.run, payload.dump_result(value, self._settings.max_result_bytes))

    def _failed(
        self, claimed: Claimed, job_type: JobType, error: BaseException, started: float, watch: Watch
    ) -> Done | Settlement:
        """Decide what an error means, by what was being done to end the run when it came."""
        if self._settings.solo_memory is not None and isinstance(error, MemoryError):
            return self._settled(claimed, "dead", "loss", OUT_OF_MEMORY, error, started)
        if watch.stopped and isinstance(error, CancelledError):
            seconds = time.monotonic() - started
            line = entry(claimed.token, STOPPED, "its task was cancelled", self._label, seconds)
            return released(claimed.run)._replace(cause=STOPPED, entry=line)
        if not watch.passed:
            return self._raised(claimed, job_type, error, started)
        if any(_may_be_outage(link) for link in chain(error)) and self._was_away():
            return self._settled(claimed, "ready", "loss", DATABASE_AWAY, error, started, delay=LOSS_PAUSE)
        if isinstance(error, job_type.fail_on):
            return self._settled(claimed, "failed", "end", "failed", error, started)
        return self._attempt(claimed, job_type, error, started, None, DEADLINE)

    def _raised(
        self, claimed: Claimed, job_type: JobType | None, error: BaseException, started: float
    ) -> Done | Settlement:
        try:
            if isinstance(error, Outcome) and job_type is not None:
                return self._outcome(claimed, job_type, error, started)
            lost = self._loss(claimed, error, started)
            if lost is not None:
                return lost
            if job_type is not None and _is_final(job_type, error):
                return self._settled(claimed, "failed", "end", "failed", error, started)
            return self._attempt(claimed, job_type, error, started)
        except BaseException:  # an exception may break whatever looks at it
            hidden = JobsError(f"The handler raised a {type(error).__name__} that cannot be shown.")
            return self._attempt(claimed, job_type, hidden, started)

    def _outcome(self, claimed: Claimed, job_type: JobType, outcome: Outcome, started: float) -> Settlement:
        match outcome:
            case Retry():
                return self._attempt(claimed, job_type, outcome, started, outcome.delay, "retry")
            case Snooze():
                return self._settled(claimed, "ready", "end", "snoozed", outcome, started, delay=outcome.delay)
            case Fail():
                return self._settled(claimed, "failed", "end", "failed", outcome, started)
            case Cancel():
                return self._settled(claimed, "cancelled", "end", "cancelled", outcome, started)
        raise InvalidJobType(f"{outcome!r} is no outcome; use Retry, Snooze, Fail or Cancel.")

    def _attempt(
        self,
        claimed: Claimed,
        job_type: JobType | None,
        error: BaseException,
        started: float,
        delay: float | None = None,
        cause: str = "raised",
    ) -> Settlement:
        attempts = claimed.attempts + 1
        if attempts >= claimed.max_attempts:
            return self._settled(claimed, "dead", "attempt", cause, error, started)
        if delay is None:
            backoff = (job_type and job_type.backoff) or self._settings.backoff
            delay = backoff.delay(attempts)
        return self._settled(claimed, "ready", "attempt", cause, error, started, delay=delay)

    def _loss(self, claimed: Claimed, error: BaseException, started: float) -> Settlement | None:
        """Decide whether the jobs' database was away: by asking it anew, never by the exception's class.

        The class only says when it need not be asked: a constraint that was violated proves that the server answered.
        """
        errors = list(chain(error))
        alias = self._engine.alias
        broken = broke(alias, errors) or connect_failed(alias, errors)
        if not broken and not any(isinstance(link, _DOUBTFUL) for link in errors):
            return None
        if self._was_away():
            return self._settled(claimed, "ready", "loss", DATABASE_AWAY, error, started, delay=LOSS_PAUSE)
        if broken:
            return self._settled(claimed, "ready", "loss", CONNECTION_BROKE, error, started, delay=LOSS_PAUSE)
        return None

    def _was_away(self) -> bool:
        if not self._engine.probe(timeout=connect_timeout(self._settings.lease)):
            return True
        # It may have come back between the error and our question: others asked a moment ago.
        return self._engine.was_away_since(time.monotonic() - JUST_NOW_SECONDS)

    def _settled(
        self,
        claimed: Claimed,
        status: str,
        counts: Counts,
        cause: str,
        error: BaseException,
        started: float,
        delay: float | None = None,
    ) -> Settlement:
        short = describe(error)
        text = short if isinstance(error, Outcome) else full_text(error)
        if cause == DEADLINE:
            short, text = (f"{late(claimed.timeout)}: {said}" for said in (short, text))
        elif cause == OUT_OF_MEMORY and self._settings.solo_memory is not None:
            short, text = too_little(self._settings.solo_memory), f"{too_little(self._settings.solo_memory)}\n{text}"
        return Settlement(
            run=claimed.run,
            status=status,
            counts=counts,
            cause=cause,
            delay=delay,
            error=text,
            entry=entry(claimed.token, cause, short, self._label, time.monotonic() - started),
        )


def _is_final(job_type: JobType, error: BaseException) -> bool:
    if isinstance(error, job_type.fail_on):
        return True
    return job_type.retry_on is not None and not isinstance(error, job_type.retry_on)


def _may_be_outage(error: BaseException) -> bool:
    """Tell whether an error may come from an unreachable database, and is not a statement that was cancelled."""
    if not isinstance(error, _DOUBTFUL):
        return False
    return getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED and str(error) != "interrupted"  # SQLite
