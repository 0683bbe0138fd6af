"""The thread of a worker process that makes outcomes durable: in batches, fenced, and through outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import log
from django_jobs.engines.base import Claimed, Done, Engine, Run, Settlement
from django_jobs.workers.outage import Outage
from django_jobs.workers.seats import Region, State

GATHER_SECONDS = 0.015
BATCH = 500
PROGRESS_SECONDS = 0.5
IDLE_SECONDS = 0.5
CONTENTION_TRIES = 3


class Ended(NamedTuple):
    """A run that ended, in its seat, or a claim that goes back unstarted. `seconds` is how long it ran."""

    seat: int
    claimed: Claimed
    outcome: Done | Settlement
    seconds: float


class Writer:
    def __init__(
        self,
        engine: Engine,
        region: Region,
        outage: Outage,
        freed: Callable[[Sequence[int]], None],
        busy: Callable[[], bool],
        max_uncounted: int,
        statement_timeout: float,
    ) -> None:
        self._engine = engine
        self._region = region
        self._outage = outage
        self._freed = freed
        self._busy = busy
        self._max_uncounted = max_uncounted
        self._statement_timeout = statement_timeout
        self._ended: SimpleQueue[Ended | None] = SimpleQueue()
        self._reports: dict[Run, str] = {}
        self._reported_at = 0.0
        self._finish = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, ended: Ended) -> None:
        self._ended.put(ended)

    def report(self, run: Run, progress: str) -> None:
        """Keep the latest progress of a run, to be written within about half a second."""
        self._reports[run] = progress

    def finish(self) -> None:
        """Write what is there and end; returns when all of it is durable."""
        self._finish.set()
        self._ended.put(None)
        self._thread.join()

    @property
    def empty(self) -> bool:
        return self._ended.empty()

    def _loop(self) -> None:
        while True:
            self._region.tick_writes()
            try:
                batch = self._gather()
                self._write_reports()
                if batch:
                    self._write(batch)
                elif self._finish.is_set() and self._ended.empty():
                    self._engine.connection.close()
                    return
            except Exception:
                log.loop_failed("Writing outcomes")

    def _gather(self) -> list[Ended]:
        try:
            first = self._ended.get(timeout=PROGRESS_SECONDS if self._reports else IDLE_SECONDS)
        except Empty:
            return []
        if self._busy():
            self._finish.wait(GATHER_SECONDS)
        batch = [first]
        try:
            while len(batch) < BATCH:
                batch.append(self._ended.get_nowait())
        except Empty:
            pass
        return [item for item in batch if item is not None]

    def _write_reports(self) -> None:
        now = time.monotonic()
        if not self._reports or (now - self._reported_at < PROGRESS_SECONDS and self._ended.empty()):
            return
        reports, self._reports = self._reports, {}
        self._reported_at = now
        try:
            self._engine.prepare(self._statement_timeout)
            self._engine.store_progress(list(reports.items()))
        except (DatabaseError, InterfaceError) as error:
            # Progress is for looking at: the next report replaces this one.
            self._engine.connection.close()
            if not self._engine.probe(timeout=self._statement_timeout):
                self._outage.failed(error)

    def _write(self, batch: list[Ended]) -> None:
        """Write a batch whole, or in halves; come back only when every seat of it is free."""
        parts = [batch]
        tries = 0
        while parts:
            part = parts[0]
            self._region.tick_writes()
            try:
                self._engine.prepare(self._statement_timeout)
                self._store(part)
            except Exception as error:
                self._engine.connection.close()
                tries += 1
                self._after_error(parts, error, tries)
            else:
                parts.pop(0)
                tries = 0
                self._outage.over()

    def _after_error(self, parts: list[list[Ended]], error: Exception, tries: int) -> None:
        if isinstance(error, OperationalError | InterfaceError):
            if not self._engine.probe(timeout=self._statement_timeout):
                time_to_wait = self._outage.failed(error)
                threading.Event().wait(time_to_wait)
                return
            # A deadlock, or a row that somebody holds for long: not the outcome's fault.
            if tries <= CONTENTION_TRIES or len(parts[0]) == 1:
                threading.Event().wait(min(0.05 * 2**tries, 2.0))
                return
        part = parts.pop(0)
        if len(part) > 1:
            half = len(part) // 2
            parts[:0] = [part[:half], part[half:]]
        else:
            self._store_without_texts(part[0], error)

    def _store_without_texts(self, item: Ended, error: Exception) -> None:
        log.job_unstorable(item.claimed.run, error)
        bare = Settlement(
            run=item.claimed.run,
            status="failed",
            counts="end",
            cause="outcome could not be stored",
            error="The outcome of this run could not be stored.",
        )
        try:
            self._engine.prepare(self._statement_timeout)
            self._store([item._replace(outcome=bare)])
        except Exception:
            # Without its seat the run is no longer kept alive: it is taken back as lost, which is bounded.
            log.loop_failed("Storing an outcome without its texts")
            self._free([item])

    def _store(self, batch: list[Ended]) -> None:
        done = [item for item in batch if isinstance(item.outcome, Done)]
        settled = [item for item in batch if isinstance(item.outcome, Settlement)]
        if done:
            written = self._engine.complete([item.outcome for item in done if isinstance(item.outcome, Done)])
            self._account_done(done, written)
            self._free(done)
        if settled:
            statuses = self._engine.settle(
                [item.outcome for item in settled if isinstance(item.outcome, Settlement)], self._max_uncounted
            )
            self._account_settled(settled, statuses)
            self._free(settled)
        batch.clear()

    def _account_done(self, done: list[Ended], written: set[int]) -> None:
        self._region.count("done", len(written))
        if log.logger.isEnabledFor(10):
            for item in done:
                log.job_done(item.claimed, item.seconds)
        if len(written) < len(done):
            self._account_refused([item.claimed.run for item in done if item.claimed.id not in written])

    def _account_settled(self, settled: list[Ended], statuses: dict[int, str]) -> None:
        for item in settled:
            status = statuses.get(item.claimed.id)
            outcome = item.outcome
            assert isinstance(outcome, Settlement)
            if status is None:
                continue
            if outcome.cause == "released":
                self._region.count("released")
                continue
            self._region.count("retried" if status == "ready" else status)
            first_line = (outcome.error or "").strip().rsplit("\n", 1)[-1][:300]
            log.job_settled(item.claimed, status, outcome.cause, first_line, outcome.delay)
        refused = [item.claimed.run for item in settled if item.claimed.id not in statuses]
        if refused:
            self._account_refused(refused)

    def _account_refused(self, runs: list[Run]) -> None:
        # After a lost answer a batch is sent again: what it then finds ended under its own token is no lost lease.
        written_before = self._engine.ended_by(runs)
        for run in runs:
            if run.id not in written_before:
                self._region.count("lost_leases")
                log.lost_lease(run)

    def _free(self, items: list[Ended]) -> None:
        for item in items:
            self._reports.pop(item.claimed.run, None)
            self._region.mark(item.seat, State.FREE)
        self._freed([item.seat for item in items])
