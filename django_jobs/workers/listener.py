"""The thread of a supervisor that listens for new jobs, on a connection of its own, and has a process woken for them."""

from __future__ import annotations

import select
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

from django_jobs import log
from django_jobs.engines.base import Engine, Listening
from django_jobs.workers import waking_log
from django_jobs.workers.connections import answer_timeout, connect_timeout, of_listener
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.outage import Outage
from django_jobs.workers.plan import Plan
from django_jobs.workers.watchdog import guarded, watchdog

# Within which what we send ourselves, for a trial, must arrive.
TRIAL_SECONDS = 2.0
# Whoever heard nothing tries again so seldom: it will not change by itself.
DEAF_SECONDS = 300.0
LOOK_SECONDS = 1.0
# Between what is heard and what is heard next: many may send.
SPACING_SECONDS = 0.025
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
# No queue has a space in its name.
TRIAL = "trial "
DEAF = (
    "LISTEN hears nothing of what is sent, as behind a pooler in transaction mode. Give DJANGO_JOBS['LISTEN_DSN'] a "
    "connection that reaches the server without it, or set LISTEN to False"
)
DEAF_DSN = (
    "the connection of DJANGO_JOBS['LISTEN_DSN'] hears nothing of what is sent on the jobs' database; it must reach the "
    "same database, and not through a pooler in transaction mode"
)
BY_DSN = "the connection of DJANGO_JOBS['LISTEN_DSN'] cannot be had"


class Deaf(Exception):
    """A connection listens, and nothing arrives."""


class Ended(Exception):
    """The thread was told to end."""


class Wakes(Protocol):
    def wake(self) -> None: ...


class Listener:
    def __init__(self, engine: Engine, plan: Plan, outage: Outage, waker: Wakes) -> None:
        self._engine = engine
        self._plan = plan
        self._lease = plan.settings.lease
        self._outage = outage
        self._waker = waker
        self._wanted = plan.settings.listen and engine.notifies
        self._told = Doorbell()
        self._ending = False
        self._failures = 0
        self._said = ""
        self._thread = threading.Thread()
        # Whether a trial has arrived, and the connection has not broken since.
        self.listens = False

    def start(self) -> None:
        if not self._wanted:
            return
        self._ending = False
        self._told.wait(0)
        watchdog.start()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-listener", daemon=True)
        self._thread.start()

    def end(self, timeout: float) -> bool:
        """Listen no more; return whether the thread ended in `timeout` seconds. It may be started again."""
        self._ending = True
        self._told.ring()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def revive(self) -> None:
        """Start the thread again if it ended without being told to."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._ending:
            waking_log.listener_stopped()
            self.start()

    def _loop(self) -> None:
        while not self._ending:
            if self._outage.lasts:
                pause = LOOK_SECONDS  # it would be in vain, and is said by those who noticed
            else:
                pause = self._listen()
            self._told.wait(pause)

    def _listen(self) -> float:
        """Listen until something fails; return the seconds until the next try."""
        try:
            with self._ear() as ear:
                self._works()
                self._hear(ear)
        except Ended:
            return 0.0
        except Deaf:
            return self._cannot(DEAF_DSN if self._plan.settings.listen_dsn else DEAF, DEAF_SECONDS)
        except Exception as error:
            return self._failed(error)
        finally:
            self.listens = False
            self._engine.connection.close()
        return 0.0

    @contextmanager
    def _ear(self) -> Iterator[Listening]:
        """Connect, and find out by a trial whether what is sent arrives."""
        with guarded(self._engine.alias, answer_timeout(self._lease)):
            channel = self._engine.channel()
        with closing(
            self._engine.listen(
                channel, self._plan.settings.listen_dsn, of_listener(self._lease), connect_timeout(self._lease)
            )
        ) as ear:
            trial = TRIAL + uuid.uuid4().hex
            # By another session: one behind a pooler may well hear itself, and nobody else.
            with guarded(self._engine.alias, answer_timeout(self._lease)):
                self._engine.notify(trial)
            self._engine.connection.close()
            self._await(ear, trial)
            yield ear

    def _await(self, ear: Listening, trial: str) -> None:
        until = time.monotonic() + TRIAL_SECONDS
        while trial not in self._next(ear, until - time.monotonic()):
            if time.monotonic() >= until:
                raise Deaf

    def _hear(self, ear: Listening) -> None:
        """Have a process woken for each queue that is named, until the connection breaks."""
        while not self._outage.lasts:
            served = {payload for payload in self._next(ear, LOOK_SECONDS) if self._is_served(payload)}
            for _ in served:
                self._waker.wake()
            if served and self._told.wait(SPACING_SECONDS):
                raise Ended

    def _next(self, ear: Listening, timeout: float) -> list[str]:
        sources: list[Any] = [ear, self._told]
        readable, _, _ = select.select(sources, [], [], max(timeout, 0.0))
        if self._ending:
            raise Ended
        return ear.heard() if ear in readable else []

    def _is_served(self, queue: str) -> bool:
        if queue.startswith(TRIAL):
            return False
        return not queue or self._plan.queues is None or queue in self._plan.queues

    def _works(self) -> None:
        self.listens = True
        self._failures = 0
        if self._said != "listens":
            self._said = "listens"
            waking_log.listens()
        self._waker.wake()  # what was sent meanwhile was not heard

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 1 and self._said:  # it may have been this connection alone
            log.connection_broke("listener", error)
            return 0.0
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - 2, 10), LONGEST_PAUSE)
        said = " ".join(str(error).split())
        return self._cannot(f"{BY_DSN}: {said}" if self._plan.settings.listen_dsn else said, pause)

    def _cannot(self, why: str, pause: float) -> float:
        if self._said in ("", "listens"):
            waking_log.does_not_listen(self._plan.settings.poll_interval, why)
        self._said = why
        return pause
