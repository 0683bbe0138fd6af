"""Deciding how a run ended, from what its function returned or raised. Nothing here writes to the jobs' table."""

from __future__ import annotations

import inspect
import time
from asyncio import CancelledError
from typing import Any

from django.db import InterfaceError, InternalError, OperationalError

from django_jobs import payload
from django_jobs.backoff import Backoff
from django_jobs.conf import Conf
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import (
    CONNECTION_BROKE,
    DATABASE_AWAY,
    DEADLINE,
    OUT_OF_MEMORY,
    OUTCOME_LOST,
    STOPPED,
)
from django_jobs.engines.values import Claimed, Counts, Done, Settlement, released
from django_jobs.exceptions import InvalidJobType, JobsError
from django_jobs.models import Job
from django_jobs.outcomes import Cancel, Fail, Outcome, Retry, Snooze
from django_jobs.queue.history import entry, late
from django_jobs.registry import JobType
from django_jobs.workers.atomic_errors import LeaseLost, own_row_changed
from django_jobs.workers.connections import (
    broke,
    connect_failed,
    connect_timeout,
)
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.errors import CHAIN_LIMIT, chain, describe, full_text
from django_jobs.workers.memory import too_little
from django_jobs.workers.watchdog import NoAnswer

# Seconds before a job that was lost with its database or connection is tried again.
LOSS_PAUSE = 5.0
# Within it, a process whose database was away has asked again: see Outage.
JUST_NOW_SECONDS = 3.0
QUERY_CANCELED = "57014"
# Characters of what was raised, with its tracebacks, up to which the log has it too.
LONGEST_LOGGED = 10_000
# What an unreachable database or, by the last, one that cannot be written makes of a handler's statement.
_DOUBTFUL = (OperationalError, InterfaceError, InternalError)


class Verdict:
    """How the runs of one thread end."""

    def __init__(self, engine: Engine, settings: Conf, label: str) -> None:
        self._engine = engine
        self._settings = settings
        self._label = label

    def returned(self, claimed: Claimed, job_type: JobType, value: Any, started: float) -> Done | Settlement:
        if value is None:
            return Done(claimed.run, None)
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

    def failed(
        self, claimed: Claimed, job_type: JobType, error: BaseException, started: float, watch: Watch
    ) -> Done | Settlement:
        """Decide what an error means, by what was being done to end the run when it came."""
        if self._settings.solo_memory is not None and isinstance(error, MemoryError):
            return self.settled(claimed, "dead", "loss", OUT_OF_MEMORY, error, started)
        if watch.stopped and isinstance(error, CancelledError):
            seconds = time.monotonic() - started
            line = entry(claimed.token, STOPPED, "its task was cancelled", self._label, seconds)
            return released(claimed.run)._replace(cause=STOPPED, entry=line)
        if not watch.passed:
            return self.raised(claimed, job_type, error, started)
        if any(_may_be_outage(link) for link in chain(error)) and self._was_away():
            return self.settled(claimed, "ready", "loss", DATABASE_AWAY, error, started, delay=LOSS_PAUSE)
        if isinstance(error, job_type.fail_on):
            return self.settled(claimed, "failed", "end", "failed", error, started)
        return self.attempt(claimed, job_type, error, started, None, DEADLINE)

    def raised(
        self, claimed: Claimed, job_type: JobType | None, error: BaseException, started: float
    ) -> Done | Settlement:
        try:
            if isinstance(error, Outcome) and job_type is not None:
                return self._outcome(claimed, job_type, error, started)
            lost = self._loss(claimed, error, started)
            if lost is not None:
                return lost
            if job_type is not None and _is_final(job_type, error):
                return self.settled(claimed, "failed", "end", "failed", error, started)
            return self.attempt(claimed, job_type, error, started)
        except BaseException:  # an exception may break whatever looks at it
            hidden = JobsError(f"The handler raised a {type(error).__name__} that cannot be shown.")
            return self.attempt(claimed, job_type, hidden, started)

    def _outcome(self, claimed: Claimed, job_type: JobType, outcome: Outcome, started: float) -> Settlement:
        match outcome:
            case Retry():
                return self.attempt(claimed, job_type, outcome, started, outcome.delay, "retry")
            case Snooze():
                return self.settled(claimed, "ready", "end", "snoozed", outcome, started, delay=outcome.delay)
            case Fail():
                return self.settled(claimed, "failed", "end", "failed", outcome, started)
            case Cancel():
                return self.settled(claimed, "cancelled", "end", "cancelled", outcome, started)
        raise InvalidJobType(f"{outcome!r} is no outcome; use Retry, Snooze, Fail or Cancel.")

    def attempt(
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
            return self.settled(claimed, "dead", "attempt", cause, error, started)
        if delay is None:
            delay = self._wait((job_type and job_type.backoff) or self._settings.backoff, attempts)
        return self.settled(claimed, "ready", "attempt", cause, error, started, delay=delay)

    def _wait(self, backoff: Backoff, attempts: int) -> float:
        return backoff.delay(attempts)

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
            return self.settled(claimed, "ready", "loss", DATABASE_AWAY, error, started, delay=LOSS_PAUSE)
        if broken:
            return self.settled(claimed, "ready", "loss", CONNECTION_BROKE, error, started, delay=LOSS_PAUSE)
        return None

    def _was_away(self) -> bool:
        if not self._engine.probe(timeout=connect_timeout(self._settings.lease)):
            return True
        # It may have come back between the error and our question: others asked a moment ago.
        return self._engine.was_away_since(time.monotonic() - JUST_NOW_SECONDS)

    def settled(
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
            exception=error if status in Job.DEAD_LETTERS and _is_for_the_log(error, text) else None,
        )

    def lost_end(
        self, claimed: Claimed, job_type: JobType, error: Exception, started: float, watch: Watch
    ) -> Settlement:
        """Decide what it means that an atomic run's end was not written, or perhaps not: the writer asks the row."""
        if isinstance(error, LeaseLost):
            # Fenced as well: it is written only if the job is this run's after all, and so the function's own doing.
            return self.settled(claimed, "failed", "end", "failed", own_row_changed(), started)
        if self._was_away():
            cause = DATABASE_AWAY
        elif isinstance(error, NoAnswer) or broke(self._engine.alias, chain(error)):
            cause = CONNECTION_BROKE
        elif watch.passed:  # by a cancellation that was meant for the function
            return self.attempt(claimed, job_type, error, started, None, DEADLINE)
        else:
            cause = OUTCOME_LOST
        return self.settled(claimed, "ready", "loss", cause, error, started, delay=LOSS_PAUSE)


def _is_final(job_type: JobType, error: BaseException) -> bool:
    if isinstance(error, job_type.fail_on):
        return True
    return job_type.retry_on is not None and not isinstance(error, job_type.retry_on)


def _is_for_the_log(error: BaseException, text: str) -> bool:
    """Tell whether what was raised can be said as it is, and helps: an outcome is said on purpose; with a MemoryError what is
    large would be kept; of what is long, or a chain that may be without end, the text that is stored is enough."""
    if isinstance(error, Outcome | MemoryError) or len(text) > LONGEST_LOGGED:
        return False
    return sum(1 for _ in chain(error)) < CHAIN_LIMIT


def _may_be_outage(error: BaseException) -> bool:
    """Tell whether an error may come from an unreachable database, and is not a statement that was cancelled."""
    if not isinstance(error, _DOUBTFUL):
        return False
    return getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED and str(error) != "interrupted"  # SQLite
