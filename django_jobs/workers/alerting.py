"""The thread that looks for alerts and tells of them; there is none where no threshold is set. Any number of them may run."""

from __future__ import annotations

import random
import threading

from django.db import connections

from django_jobs import log
from django_jobs.alerts import channels, turns
from django_jobs.alerts import log as alert_log
from django_jobs.alerts.look import look
from django_jobs.conf import Conf
from django_jobs.engines.base import Engine
from django_jobs.models import Alert
from django_jobs.workers.link import Link, is_locked
from django_jobs.workers.outage import Outage
from django_jobs.workers.watchdog import watchdog

LOOK_SECONDS = 15.0
# After an error that is none of the connection's, as with a table that is missing until the next migration.
REFUSED_SECONDS = 60.0
FIRST_WAIT = 1.0


class Alerting:
    def __init__(self, engine: Engine, settings: Conf, outage: Outage) -> None:
        self._engine, self._settings, self._outage = engine, settings, outage
        self._is_wanted = settings.dead_letter_alert is not None or settings.queue_age_alert is not None
        self._loop: _Loop | None = None

    def start(self) -> None:
        if self._is_wanted:
            watchdog.start()
            self._loop = _Loop(self._engine, self._settings, self._outage)
            self._loop.start()

    def end(self, timeout: float) -> bool:
        """Begin nothing more; return whether the thread ended in `timeout` seconds, or is with a server of somebody else.

        That, a mail server for one, may take its time, and nothing of ours waits for it. It may be started again.
        """
        if self._loop is None:
            return True
        self._loop.ending.set()
        self._loop.join(timeout)
        return self._loop.is_outside or not self._loop.is_alive()

    def revive(self) -> None:
        """Start the thread again if it ended without being told to."""
        if self._loop is not None and not self._loop.is_alive() and not self._loop.ending.is_set():
            log.loop_failed("Alerting")
            self.start()


class _Loop(threading.Thread):
    def __init__(self, engine: Engine, settings: Conf, outage: Outage) -> None:
        super().__init__(name="django_jobs-alerts", daemon=True)
        self._engine, self._settings = engine, settings
        self._link = Link(engine, outage, settings.lease, "maintenance")
        self.ending = threading.Event()
        self.is_outside = False

    def run(self) -> None:
        self.ending.wait(random.uniform(0, FIRST_WAIT))
        while not self.ending.is_set():
            self.ending.wait(self._step())
        self._link.end()

    def _step(self) -> float:
        """Look, and tell of everything that is to be told; return the seconds until the next look."""
        try:
            with self._link.guarded():
                self._link.connect()
                look(self._engine, self._settings)
            while not self.ending.is_set() and (alert := self._take()) is not None:
                self._tell(alert)
        except Exception as error:
            if is_locked(error):
                return LOOK_SECONDS
            pause = self._link.failed("Looking for alerts", error)
            return REFUSED_SECONDS if pause is None else pause
        away = self._link.check()
        self._link.close()  # nobody keeps a session for a look in a quarter of a minute
        return away or LOOK_SECONDS * random.uniform(0.8, 1.2)

    def _take(self) -> Alert | None:
        with self._link.guarded():
            self._link.connect()
            return turns.take(self._engine)

    def _tell(self, alert: Alert) -> None:
        error = self._try_to_tell(alert)
        with self._link.guarded():
            self._link.connect()
            if error is None:
                turns.told(self._engine, alert)
                return
            again = turns.failed(self._engine, alert)
        event, channel, _value = alert.to_tell[0]
        alert_log.not_told(channel, event, error, again)

    def _try_to_tell(self, alert: Alert) -> BaseException | None:
        # A receiver of the project may use its databases: it has connections as the project sets them up, and leaves none.
        connections.close_all()
        self.is_outside = True
        try:
            channels.tell(alert)
        except BaseException as error:  # also a SystemExit, which would end this thread
            return error
        finally:
            self.is_outside = False
            connections.close_all()
        return None
