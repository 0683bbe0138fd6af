"""The thread that makes the jobs of schedules, in `runscheduler` and in `runworkers`. Any number of them may run."""

from __future__ import annotations

import os
import random
import socket
import threading
import time

from django_jobs import deployment, registry
from django_jobs.conf import Conf
from django_jobs.engines.base import Engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.models import Schedule, ScheduleState
from django_jobs.schedules import log as schedule_log
from django_jobs.schedules import survey, tick
from django_jobs.schedules.sync import sync
from django_jobs.workers.link import Link, is_locked, missing_tables
from django_jobs.workers.outage import Outage
from django_jobs.workers.watchdog import watchdog

# What is edited, and what is added, is seen so soon.
LONGEST_WAIT = 3.0
# What is due and not to be had is held by another scheduler, whose transaction takes a moment.
HELD_SECONDS = 0.05
SURVEY_SECONDS = 300.0
# Tables that do not fit are tried again so soon.
REFUSED_SECONDS = 30.0
# A burst does not wait longer for the jobs of slots that cannot be made.
STUCK_SECONDS = 10.0


class Scheduler:
    def __init__(self, engine: Engine, settings: Conf, outage: Outage) -> None:
        self._engine = engine
        self._types = registry.names()
        self._link = Link(engine, outage, settings.lease, "scheduler")
        self._deployment = settings.deployment
        self._owner = deployment.Owner(engine, settings.deployment, settings.heartbeat)
        self._label = f"{socket.gethostname()}:{os.getpid()}"
        self._wake = threading.Event()
        self._ending = False
        self._begun = False
        self._ended_cut_off = False
        self._refused_at = 0.0
        # Nothing was due at the last look.
        self._at_rest = False
        # When it last got somewhere.
        self._moved_at = 0.0
        self._surveyed_at = 0.0
        self._newest = False
        self._thread = threading.Thread()
        self.ready = threading.Event()
        self.refused = ""

    def start(self) -> None:
        self._ending = False
        self.refused = ""
        self._moved_at = time.monotonic()
        self._wake.clear()
        watchdog.start()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-scheduler", daemon=True)
        self._thread.start()

    def end(self, timeout: float) -> bool:
        """Make no more jobs; return whether the thread ended in `timeout` seconds. It may be started again."""
        self._ending = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def revive(self) -> None:
        """Start the thread again if it ended without being told to; where it was refused, now and then, as after a migration."""
        watchdog.start()
        if self._thread.is_alive() or self._ending:
            return
        if not self.refused:
            schedule_log.scheduler_stopped()
        elif time.monotonic() - self._refused_at < REFUSED_SECONDS:
            return
        self.start()

    @property
    def cut_off(self) -> bool:
        """Whether the database cannot be reached, or could not when the thread ended."""
        return self._link.cut_off or self._ended_cut_off

    @property
    def at_rest(self) -> bool:
        """Whether no slot has come whose jobs are still to be made, as far as is known and as they can be made."""
        return self._at_rest or bool(self.refused) or time.monotonic() - self._moved_at > STUCK_SECONDS

    def _loop(self) -> None:
        while not self._ending:
            pause = self._step()
            if self.refused:
                break
            self._wake.wait(pause)
        self._ended_cut_off = self._link.cut_off
        self._link.end()
        self.ready.set()

    def _step(self) -> float:
        """Do what is due; return the seconds until something is."""
        try:
            with self._link.guarded():
                self._link.connect()
                if not self._begun:
                    self._begin()
                if lost := self._owner.refuses():
                    raise ConfigurationError(lost)
                pause = self._tick()
        except Exception as error:
            if refused := self._refused(error):
                self.refused, self._refused_at = refused, time.monotonic()
                return 0.0
            if isinstance(error, tick.Held) or is_locked(error):
                schedule_log.schedules_held(error)
                return LONGEST_WAIT
            found = self._link.failed("Making the jobs of schedules", error)
            return LONGEST_WAIT if found is None else found
        self.ready.set()
        return self._link.check() or pause

    def _refused(self, error: Exception) -> str:
        if isinstance(error, ConfigurationError):
            return str(error)
        return "" if self._begun else missing_tables(error, self._engine.alias)

    def _begin(self) -> None:
        for model in (Schedule, ScheduleState):  # are the tables there, with all columns?
            list(model.objects.using(self._engine.alias).filter(pk=0))
        deployment.begin(self._engine, self._deployment)
        sync(self._engine.alias)
        self._adopt()
        survey.recompute_stale(self._engine.alias)
        schedule_log.scheduler_started(Schedule.objects.using(self._engine.alias).count())
        self._begun = True

    def _adopt(self) -> None:
        survey.adopt(self._engine.alias)
        self._surveyed_at = time.monotonic()

    def _tick(self) -> float:
        if time.monotonic() - self._surveyed_at > SURVEY_SECONDS:
            self._adopt()
        # Looked at first: a tick takes the lock of a whole SQLite database.
        due_in = tick.due_in(self._engine, self._types)
        self._at_rest = due_in != 0
        if due_in is None or due_in > 0:
            self._moved_at = time.monotonic()
            return LONGEST_WAIT if due_in is None else min(due_in, LONGEST_WAIT)
        ticked = tick.tick(self._engine, self._types, self._label, newest=self._newest)
        # In turns as long as more is due than one tick takes.
        self._newest = ticked.taken >= tick.BATCH and not self._newest
        if ticked.taken:
            self._moved_at = time.monotonic()
            return 0.0
        return random.uniform(HELD_SECONDS, 2 * HELD_SECONDS)
