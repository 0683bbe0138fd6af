"""Running one job: calling its function. Nothing here writes to the jobs' table, unless the job is atomic."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from django.db import connections, reset_queries

from django_jobs import registry, signals, tracing
from django_jobs.conf import Conf
from django_jobs.context import Context, current
from django_jobs.engines.base import Engine
from django_jobs.engines.idle import may_be_dead
from django_jobs.engines.values import Claimed, Done, Run, Settlement, released
from django_jobs.exceptions import AtomicBroken, JobsError
from django_jobs.outcomes import Outcome
from django_jobs.queue import told
from django_jobs.registry import JobType
from django_jobs.workers.atomic import AtomicRun
from django_jobs.workers.atomic_errors import IdleTooLong, LeaseLost, NotStarted, OutcomeLost
from django_jobs.workers.calling import call
from django_jobs.workers.connections import (
    TransactionLeftOpen,
    answer_timeout,
    discard_all,
    discard_open_transactions,
    opened,
)
from django_jobs.workers.connections import watch as watch_connections
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.memory import limited
from django_jobs.workers.verdict import Verdict
from django_jobs.workers.watchdog import NoAnswer, guarded

IDLE_BEFORE_CHECK = 5.0
# Of an error, which ends with what it says, a trace has so much.
ERROR_CHARACTERS = 500


class Runner:
    """Runs jobs on one thread."""

    _atomic: type[AtomicRun] = AtomicRun
    _verdicts: type[Verdict] = Verdict

    def __init__(
        self,
        engine: Engine,
        settings: Conf,
        label: str,
        reported: Callable[[Run], str | None] = lambda run: None,
    ) -> None:
        """`reported` returns the latest progress of a run that is not stored yet."""
        self._engine = engine
        self._reported = reported
        self._settings = settings
        self._verdict = self._verdicts(engine, settings, label)
        self._used_at = time.monotonic()

    def run(self, claimed: Claimed, context: Context, watch: Watch | None = None) -> Done | Settlement:
        """Call the function; return how the run ended, whatever the function does."""
        token = current.set(context)
        try:
            if not tracing.is_on():
                return self._run(claimed, context, watch)
            with tracing.processing(claimed) as processed:
                ended = self._run(claimed, context, watch)
                processed.ended(*_told(ended))
                return ended
        finally:
            current.reset(token)

    def _run(self, claimed: Claimed, context: Context, watch: Watch | None) -> Done | Settlement:
        started = time.monotonic()
        self._check_connections(started)
        watch = watch or Watch()
        job_type = registry.find(claimed.type)
        if signals.job_started.receivers and job_type is not None:
            self._tell_started(claimed)
        failed = False
        try:
            if job_type is None:
                raise JobsError(f"No function is registered as {claimed.type!r}.")
            called = self._called_atomically if job_type.atomic else self._called
            ended, failed = called(claimed, job_type, context, started, watch)
        except BaseException as error:
            failed = True
            ended = self._verdict.raised(claimed, job_type, error, started)
        left_open = self._clean_up(watch, failed)
        if left_open and not failed and ended.stored is None:
            ended = self._verdict.raised(claimed, job_type, TransactionLeftOpen(left_open), started)
        if job_type is not None and job_type.ended is not None:
            job_type.ended(claimed, ended)
        self._used_at = time.monotonic()
        return ended

    def _clean_up(self, watch: Watch, failed: bool) -> list[str]:
        """Leave nothing to the next job by this thread's connections; return the aliases of transactions left open."""
        left_open = discard_open_transactions()
        if watch.passed:
            discard_all()  # a statement of theirs was cancelled, or still may be
        elif failed:
            # What it did to its sessions, such as SET, must not make the next job fail as well.
            connections.close_all()
        return left_open

    def _tell_started(self, claimed: Claimed) -> None:
        told.started(claimed)
        watch_connections(self._engine.alias)  # what a receiver broke is not the run's doing

    def _called(
        self, claimed: Claimed, job_type: JobType, context: Context, started: float, watch: Watch
    ) -> tuple[Done | Settlement, bool]:
        """Call the function; return how the run ended, and whether by an error."""
        function = partial(call, job_type, claimed, context, watch, self._settings.around)
        if self._settings.solo_memory is None:
            called = watch.call(function)
        else:
            with limited(self._settings.solo_memory):
                called = watch.call(function)
        error, called.error = called.error, None
        if error is None:
            return self._verdict.returned(claimed, job_type, called.value, started), False
        if isinstance(error, Outcome):
            return self._verdict.raised(claimed, job_type, error, started), False
        return self._verdict.failed(claimed, job_type, error, started, watch), True

    def _called_atomically(
        self, claimed: Claimed, job_type: JobType, context: Context, started: float, watch: Watch
    ) -> tuple[Done | Settlement, bool]:
        """Call the function in a transaction that is committed with the end of the run, as `_called` does without."""
        run = self._atomic(
            self._engine,
            self._settings,
            claimed,
            job_type,
            watch,
            lambda: context.should_stop,
            self._reported,
        )
        try:
            function = partial(call, job_type, claimed, context, watch, self._settings.around)
            return run.make(function, lambda value: self._verdict.returned(claimed, job_type, value, started)), False
        except NotStarted:
            return released(claimed.run), False
        except Outcome as outcome:
            return self._verdict.raised(claimed, job_type, outcome, started), False
        except (LeaseLost, OutcomeLost, NoAnswer) as error:
            return self._verdict.lost_end(claimed, job_type, error, started, watch), True
        except AtomicBroken as error:
            return self._verdict.settled(claimed, "failed", "end", "failed", error, started), True
        except IdleTooLong as error:
            return self._verdict.attempt(claimed, job_type, error, started), True
        except BaseException as error:
            return self._verdict.failed(claimed, job_type, error, started, watch), True

    def _check_connections(self, now: float) -> None:
        idle = now - self._used_at > IDLE_BEFORE_CHECK
        for connection in opened():
            if idle or connection.errors_occurred or may_be_dead(connection):
                with guarded(connection.alias, answer_timeout(self._settings.lease)):
                    connection.close_if_unusable_or_obsolete()
                    if connection.connection is not None and not connection.is_usable():
                        connection.close()
            if connection.queries_logged:
                reset_queries()
        watch_connections(self._engine.alias)


def _told(ended: Done | Settlement) -> tuple[str, str | None]:
    """Return how a run ended for who traces it, and what was said if that was an error."""
    if isinstance(ended, Done):
        return "done", None
    is_error = ended.counts != "nothing" and ended.cause not in ("snoozed", "cancelled")
    return ended.cause, ended.error and ended.error[-ERROR_CHARACTERS:] if is_error else None
