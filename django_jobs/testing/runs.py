"""One run of a job in a test: by the code of a worker's thread, where a transaction of a TestCase may be open around it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

from django.db import transaction

from django_jobs import log, payload
from django_jobs.backoff import Backoff
from django_jobs.conf import Conf
from django_jobs.engines.base import DATABASE_ERRORS
from django_jobs.engines.values import Claimed, Done, Run, Settlement
from django_jobs.testing.engines import EngineInTest
from django_jobs.testing.faults import Fault, WorkerLost
from django_jobs.testing.transactions import RunBlocks, in_test_case, unwind
from django_jobs.workers.atomic import AtomicRun
from django_jobs.workers.calling import context_of
from django_jobs.workers.connections import discard_open_transactions
from django_jobs.workers.connections import watch as watch_connections
from django_jobs.workers.deadlines import Watch
from django_jobs.workers.pinned import PinnedCall
from django_jobs.workers.runner import Runner
from django_jobs.workers.verdict import Verdict

LABEL = "test"


class AtomicRunInTest(AtomicRun):
    """Ends with a savepoint where a TestCase has the transaction: what follows the commit follows the run then."""

    _engine: EngineInTest

    def _commit(self, block: transaction.Atomic) -> None:
        if not in_test_case(self._engine.connection):
            super()._commit(block)
            return
        block.__exit__(None, None, None)
        self._committed = True
        self._engine.restore()

    def _roll_back(self, block: transaction.Atomic, error: BaseException) -> None:
        connection = self._engine.connection
        if not in_test_case(connection):
            super()._roll_back(block, error)
            return
        unwind(connection, block)
        block.__exit__(type(error), error, None)


class VerdictInTest(Verdict):
    """Has a retry wait for the longest that it may, and not for a part of that by chance."""

    def _wait(self, backoff: Backoff, attempts: int) -> float:
        return backoff.ceiling(attempts)


class RunnerInTest(Runner):
    """Closes no connection that is in the transaction of a TestCase."""

    _atomic = AtomicRunInTest
    _verdicts = VerdictInTest

    def __init__(
        self, engine: EngineInTest, settings: Conf, blocks: RunBlocks, reported: Callable[[Run], str | None]
    ) -> None:
        super().__init__(engine, settings, LABEL, reported)
        self._blocks = blocks

    def _check_connections(self, now: float) -> None:
        watch_connections(self._engine.alias)

    def _clean_up(self, watch: Watch, failed: bool) -> list[str]:
        if not self._blocks:
            return super()._clean_up(watch, failed)
        return self._blocks.unwind() + discard_open_transactions()


class WatchInTest(Watch):
    """Keeps what the function returned or raised, and has the worker be lost when it is to be."""

    def __init__(self, deadline: float, fault: Fault | None, returned: Callable[[], None]) -> None:
        super().__init__(deadline)
        self._fault = fault
        self._returned = returned
        self.value: Any = None
        self.error: BaseException | None = None

    def call(self, function: Callable[[], Any]) -> PinnedCall:
        called = super().call(lambda: self._around(function))
        self.value, self.error = called.value, called.error
        return called

    def _around(self, function: Callable[[], Any]) -> Any:
        lost = self._fault is not None and self._fault.kind == "worker lost"
        if lost and self._fault is not None and self._fault.moment == "start":
            raise WorkerLost
        value = function()
        self._returned()
        if lost:
            raise WorkerLost
        return value


class OneRun:
    """Calls the function of a claimed job; what comes of it is for others to store."""

    def __init__(
        self, engine: EngineInTest, settings: Conf, claimed: Claimed, is_atomic: bool, fault: Fault | None
    ) -> None:
        self._engine = engine
        self._claimed = claimed
        self._blocks = RunBlocks()
        self._runner = RunnerInTest(engine, settings, self._blocks, lambda run: self.progress)
        self._deadline = math.inf if claimed.timeout is None else time.monotonic() + claimed.timeout
        # Hooks of an atomic job belong after the commit.
        self._watch = WatchInTest(self._deadline, fault, (lambda: None) if is_atomic else self._blocks.run_hooks)
        self._lease = settings.lease
        self.progress: str | None = None

    def make(self) -> Done | Settlement:
        self._blocks.open()
        try:
            context = context_of(self._claimed, self._is_to_stop, self._report)
            return self._runner.run(self._claimed, context, self._watch)
        finally:
            self._blocks.close()
            self._run_hooks()

    def _run_hooks(self) -> None:
        try:
            self._blocks.run_hooks()
        except Exception as error:
            log.hook_failed(self._claimed, error)

    @property
    def told(self) -> Any:
        """What the function raised, or returned."""
        return self._watch.value if self._watch.error is None else self._watch.error

    @property
    def error(self) -> BaseException | None:
        return self._watch.error

    def _is_to_stop(self) -> bool:
        """Tell what a heartbeat would: that a person has cancelled the job, or that it is no longer this run's."""
        try:
            return time.monotonic() >= self._deadline or not self._engine.renew(self._claimed.run, self._lease)
        except DATABASE_ERRORS:
            return False  # its transaction is one in which a statement failed; a heartbeat has a connection of its own

    def _report(self, progress: dict[str, object]) -> None:
        self.progress = payload.dump(progress)


def said(outcome: Settlement) -> str:
    """Return in a line why a run ended as it did."""
    return str(json.loads(outcome.entry)["error"]) if outcome.entry else outcome.error or ""
