"""The thread of a worker process that makes outcomes durable: in batches, fenced, and through outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from django.db import DataError, IntegrityError

from django_jobs import log, registry
from django_jobs.engines.base import DATABASE_ERRORS, Engine
from django_jobs.engines.values import Run
from django_jobs.workers import ended
from django_jobs.workers.aside import Aside, parted
from django_jobs.workers.connections import answer_timeout, connect_timeout, statement_timeout, was_cut
from django_jobs.workers.ended import Ended
from django_jobs.workers.failure import end_process, end_process_on_error
from django_jobs.workers.load import Load
from django_jobs.workers.outage import Outage
from django_jobs.workers.reports import Reports
from django_jobs.workers.seats import Region, State
from django_jobs.workers.watchdog import guarded

GATHER_SECONDS = 0.015
BATCH = 500
PROGRESS_SECONDS = 0.5
IDLE_SECONDS = 0.5
CONTENTION_TRIES = 3
LONGEST_CONTENTION_PAUSE = 2.0
Part = list[Ended]


class Writer:
    def __init__(
        self,
        engine: Engine,
        region: Region,
        outage: Outage,
        freed: Callable[[Sequence[int]], None],
        busy: Callable[[], bool],
        max_uncounted: int,
        lease: float,
        to_blame_for: Callable[[float], bool],
        incarnation: str,
    ) -> None:
        self._engine = engine
        self._region = region
        self._outage = outage
        self._freed = freed
        self._busy = busy
        self._max_uncounted = max_uncounted
        self._statement_timeout = statement_timeout(lease)
        self._answer_timeout = answer_timeout(lease)
        self._probe_timeout = connect_timeout(lease)
        # Whether it is by this process itself that it has been cut off for so many seconds.
        self._to_blame_for = to_blame_for
        self._away_since: float | None = None
        self._ended: SimpleQueue[Ended | None] = SimpleQueue()
        # What was committed with its run: nothing is left to write.
        self._stored: SimpleQueue[Ended] = SimpleQueue()
        # What is to be written next: each part in one statement. A part leaves only when its seats are free.
        self._parts: list[Part] = []
        self._tries = 0
        self._aside = Aside()
        self._reports = Reports(incarnation)
        self._reported_at = 0.0
        self._finish = threading.Event()
        self._hurry = threading.Event()
        self._load = Load()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, item: Ended) -> None:
        self._load.add(ended.characters(item))
        if item.outcome.stored is not None:
            self._stored.put(item)
            self._ended.put(None)  # it may be waiting there
            return
        self._ended.put(item)
        job_type = registry.find(item.claimed.type)
        if job_type is not None and job_type.durable:
            self._hurry.set()

    @property
    def crowded(self) -> bool:
        """Whether so much text waits to be stored that no more jobs should be claimed."""
        return self._load.heavy

    def report(self, run: Run, progress: str) -> None:
        """Keep the latest progress of a run, to be written within about half a second."""
        self._reports.keep(run, progress)

    def reported(self, run: Run) -> str | None:
        """Return the latest progress of a run that is not written yet."""
        return self._reports.latest(run)

    def finish(self) -> None:
        """Write what is there and end; returns when all of it is durable."""
        self._finish.set()
        self._hurry.set()
        self._ended.put(None)
        self._thread.join()

    def _loop(self) -> None:
        with end_process_on_error(self._region):
            self._write_all()

    def _write_all(self) -> None:
        while not self._finished():
            self._region.tick_writes()
            self._free_stored()
            try:
                if not self._parts:
                    self._parts = ended.parts(self._gather())
                if time.monotonic() - self._reported_at >= PROGRESS_SECONDS:
                    self._write_reports()
                if self._parts:
                    self._write(self._parts[0])
            except Exception:
                log.loop_failed("Writing outcomes")
                _pause(1.0)
        if not self.away:
            self._write_reports(last=True)
        self._engine.connection.close()

    def _finished(self) -> bool:
        return (
            self._finish.is_set()
            and not self._parts
            and not self._aside
            and self._ended.empty()
            and self._stored.empty()
        )

    def _free_stored(self) -> None:
        """Free the seats of runs that have stored their ends themselves: that needs no database."""
        while not self._stored.empty():
            item = self._stored.get()
            self._free([item])
            self._account([item], {item.claimed.id: str(item.outcome.stored)})

    def _gather(self) -> Part:
        """Wait for outcomes, and a moment longer for more; return those that came."""
        if self._aside.is_due:
            try:
                return self._no_longer_aside()
            except DATABASE_ERRORS as error:
                self._aside.wait()
                self._engine.connection.close()
                self._is_away(error)
        try:
            batch = [self._ended.get(timeout=PROGRESS_SECONDS if self._reports or self._aside else IDLE_SECONDS)]
        except Empty:
            return []
        if self._busy() and not self._finish.is_set() and self._ended.qsize() < BATCH:
            self._hurry.wait(GATHER_SECONDS)
        self._hurry.clear()
        try:
            while len(batch) < BATCH:
                batch.append(self._ended.get_nowait())
        except Empty:
            pass
        return [item for item in batch if item is not None]

    def _write(self, part: Part) -> None:
        try:
            with self._prepared():
                if self._reports:
                    self._reports.store(self._engine, [item.claimed.run for item in part])
                statuses = ended.store(self._engine, part, self._max_uncounted)
        except Exception as error:
            self._after_error(part, error)
            return
        self._is_reached()
        self._done_with(part)
        self._account(part, statuses)

    def _account(self, part: Part, statuses: dict[int, str]) -> None:
        ended.account(self._region, part, statuses)
        self._reports.tallies.note(part, statuses)

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        with guarded(self._engine.alias, self._answer_timeout):
            self._engine.prepare(self._statement_timeout)
            yield

    def _done_with(self, part: Part) -> None:
        self._parts.pop(0)
        self._tries = 0
        self._free(part)

    def _free(self, part: Part) -> None:
        for item in part:
            if self._reports:
                self._reports.drop(item.claimed.run)
            self._load.add(-ended.characters(item))
            self._region.mark(item.seat, State.FREE)
        self._freed([item.seat for item in part])

    def _after_error(self, part: Part, error: Exception) -> None:
        self._engine.connection.close()
        self._region.tick_writes()
        if isinstance(error, DATABASE_ERRORS) and self._is_away(error):
            return
        # Only what the database says of the values is the outcome's fault, and what Python says of them.
        contended = isinstance(error, DATABASE_ERRORS) and not isinstance(error, DataError | IntegrityError)
        self._tries += 1
        if contended and self._tries <= CONTENTION_TRIES:
            # A deadlock, or a row that somebody holds for long: not the outcome's fault.
            _pause(min(0.05 * 2**self._tries, LONGEST_CONTENTION_PAUSE))
            self._put_locked_aside(part)
            return
        self._take_apart(part, error, contended)

    def _is_away(self, error: Exception) -> bool:
        """Tell whether the database cannot be reached or written; if so, after a pause."""
        if self._engine.probe(timeout=self._probe_timeout):
            self._is_reached()
            return False
        if self._away_since is None:
            self._away_since = time.monotonic()
        if self._to_blame_for(time.monotonic() - self._away_since):
            end_process(self._region, error)
        _pause(self._outage.failed(error))
        return True

    def _is_reached(self) -> None:
        self._outage.over()
        self._away_since = None

    @property
    def away(self) -> bool:
        """Whether outcomes cannot be stored, and so no more jobs should be claimed."""
        return self._away_since is not None

    def _put_locked_aside(self, part: Part) -> None:
        """Keep as the next part those outcomes whose rows nobody holds."""
        try:
            with self._prepared():
                free, locked = parted(self._engine, part)
        except DATABASE_ERRORS:
            self._engine.connection.close()
            return  # writing the part is tried again, and says what is wrong
        self._aside.put(locked)
        self._parts[:1] = [free] if free else []
        if not free:
            self._tries = 0

    def _no_longer_aside(self) -> Part:
        with self._prepared():
            back = self._aside.take_free(self._engine)
        self._is_reached()
        return back

    def _take_apart(self, part: Part, error: Exception, contended: bool) -> None:
        """Halve a part that cannot be stored, down to the one outcome, which is then stored without its texts."""
        if len(part) > 1:
            half = len(part) // 2
            self._parts[:1] = [part[:half], part[half:]]
        elif contended:
            log.loop_failed("Writing an outcome")
            self._parts.pop(0)
            self._tries = 0
            self._aside.put(part)
        elif part[0].bare:
            # Without its seat the run is no longer kept alive: it is taken back as lost, which is bounded.
            log.loop_failed("Storing an outcome without its texts")
            self._done_with(part)
        else:
            log.job_unstorable(part[0].claimed.run, error)
            self._load.add(-ended.characters(part[0]))
            self._parts[0] = [ended.without_texts(part[0])]

    def _write_reports(self, last: bool = False) -> None:
        self._reported_at = time.monotonic()
        if not (last or self._reports.due):
            return
        try:
            with self._prepared():
                self._reports.store(self._engine)
                if last or self._reports.tallies.due:
                    self._reports.tallies.store(self._engine)
        except Exception as error:
            self._engine.connection.close()
            if not self._is_away(error) and not was_cut(error):
                log.loop_failed("Storing progress")
        else:
            self._is_reached()


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
