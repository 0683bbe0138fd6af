"""The thread that takes away what is old: jobs that ended, the archive's oldest, and effects; and that of alerts beside it.

Any number of them may run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Iterator

from django_jobs import log
from django_jobs.conf import Conf
from django_jobs.engines.archive import archive
from django_jobs.engines.base import Engine
from django_jobs.queue.archive import REST, Round
from django_jobs.workers import retention
from django_jobs.workers.alerting import Alerting
from django_jobs.workers.link import Link, is_locked
from django_jobs.workers.outage import Outage
from django_jobs.workers.watchdog import watchdog

# A round is made so many times while a job that is done is kept, within these bounds.
ROUNDS, SHORTEST, LONGEST = 48, 60.0, 900.0
# Trees that are started together do not begin together.
FIRST_WAIT = 1.0


class Maintenance:
    def __init__(self, engine: Engine, settings: Conf, outage: Outage) -> None:
        self._engine = engine
        self._archive = archive(engine.alias)
        self._tasks = retention.tasks(engine, settings)
        self._interval = min(max(settings.keep_done / ROUNDS, SHORTEST), LONGEST)
        self._link = Link(engine, outage, settings.lease, "maintenance")
        self._alerting = Alerting(engine, settings, outage)
        self._wake = threading.Event()
        self._ending = False
        self._work: Generator[float] | None = None
        self._thread = threading.Thread()

    def start(self) -> None:
        self._ending = False
        self._wake.clear()
        self._start_thread()
        self._alerting.start()

    def _start_thread(self) -> None:
        watchdog.start()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-maintenance", daemon=True)
        self._thread.start()

    def end(self, timeout: float) -> bool:
        """Begin no further step; return whether the threads ended in `timeout` seconds. They may be started again."""
        until = time.monotonic() + timeout
        self._ending = True
        self._wake.set()
        self._alerting.end(0.0)
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return self._alerting.end(max(until - time.monotonic(), 0.0)) and not self._thread.is_alive()

    def revive(self) -> None:
        """Start the thread again if it ended without being told to."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._ending:
            log.loop_failed("Maintenance")
            self._start_thread()
        self._alerting.revive()

    def _loop(self) -> None:
        self._wake.wait(random.uniform(0, FIRST_WAIT))
        while not self._ending:
            self._wake.wait(self._step())
        self._give_up()
        self._link.end()

    def _step(self) -> float:
        """Do a piece of the work at hand, or begin anew; return the seconds until the next one."""
        try:
            with self._link.guarded():
                self._link.connect()
                if self._work is None:
                    self._work = self._round()
                pause = next(self._work, None)
        except Exception as error:
            return self._after_error(error)
        away = self._link.check()
        if away or pause is not None:
            return away or pause or 0.0
        self._work = None
        self._link.close()  # nobody keeps a session for a round in a quarter of an hour
        return self._interval * random.uniform(0.8, 1.0)

    def _after_error(self, error: Exception) -> float:
        self._give_up()
        if is_locked(error):
            return SHORTEST * random.uniform(0.8, 1.0)
        pause = self._link.failed("Taking away what is old", error)
        # One that is none of the connection's comes again: as a table that is missing until the next migration.
        return SHORTEST * random.uniform(0.8, 1.0) if pause is None else pause

    def _give_up(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            with self._link.guarded():
                work.close()

    def _round(self) -> Generator[float]:
        for task in retention.due(self._engine, self._tasks):
            yield from self._all(task.do, task.most)
        yield from Round(self._archive, rest=REST).steps()

    @staticmethod
    def _all(task: Callable[[], int], most: int) -> Iterator[float]:
        number = most
        while number == most:
            began = time.monotonic()
            number = task()
            yield (time.monotonic() - began) * REST
