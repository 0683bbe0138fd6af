"""What a supervisor does in the database, on one thread: heartbeats, the rescue of dead children's jobs, and reaping."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from django_jobs import deployment, log
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import LEASE_RAN_OUT
from django_jobs.engines.values import Run
from django_jobs.exceptions import ConfigurationError
from django_jobs.models import Job
from django_jobs.models import Worker as WorkerRow
from django_jobs.queue import rescue
from django_jobs.workers.duty import Duty
from django_jobs.workers.fallen import Fallen, Rescuer
from django_jobs.workers.fitness import Fitness
from django_jobs.workers.link import Link, missing_tables, took_too_long
from django_jobs.workers.outage import Outage
from django_jobs.workers.plan import Plan
from django_jobs.workers.pulse import Pulse
from django_jobs.workers.registration import forget_silent
from django_jobs.workers.watchdog import watchdog

RESCUE_SECONDS = 1.0
SILENT_LEASES = 10


class Heart:
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        pulse: Pulse,
        rescuer: Rescuer,
        outage: Outage,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._ring = ring
        self._plan = plan
        self._settings = plan.settings
        self._pulse = pulse
        self._rescuer = rescuer
        self._link = Link(engine, outage, plan.settings.lease)
        self._owner = deployment.Owner(engine, plan.settings.deployment, plan.settings.heartbeat)
        self._fitness = Fitness(plan.settings.lease, plan.settings.heartbeat)
        self._beating = Duty("Sending heartbeats", self._beat)
        self._rescuing = Duty("Taking back the jobs of dead worker processes", self._rescue)
        self._suspecting = Duty("Looking for suspects", self._look_for_suspects)
        self._looking = Duty("Looking for due jobs", self._look, math.inf)
        self._answering = Duty("Storing stacks", pulse.orders.answer, math.inf)
        # The heartbeat first: nothing that may take long or fail comes before it.
        reaping = Duty("Taking back lost jobs", self._reap)
        self._duties = [self._beating, self._rescuing, reaping, self._suspecting, self._looking, self._answering]
        self._wake = threading.Event()
        self._ending = False
        self._begun = False
        self._strays: set[Run] = set()
        self._forget_at = 0.0
        self._question: object = None
        self._answer: tuple[object, bool] | None = None
        self._thread = threading.Thread()
        # How many were due, and not claimed, at the last look: whoever starts a process for one counts it off.
        self.suspects = 0
        self.ready = threading.Event()
        self.refused = ""
        # Why the database, which was ours, is so no more.
        self.lost = ""

    def start(self) -> None:
        self._ending = False
        watchdog.start()
        self._thread = threading.Thread(target=self._loop, name="django_jobs-heart", daemon=True)
        self._thread.start()

    def end(self, timeout: float) -> bool:
        """Finish the rescues at hand; return whether that was possible in `timeout` seconds. It may be started again."""
        self._ending = True
        self._wake.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        watchdog.end()  # a process that is about to fork may have no other thread
        return True

    def revive(self) -> None:
        """Start the thread again if it ended without being told to: nothing else extends leases."""
        watchdog.start()
        if not self._thread.is_alive() and not self._ending:
            log.heart_stopped()
            self.start()

    def rescue(self, fallen: Fallen) -> None:
        """Take back what a child that ended has left, and then look for suspects anew."""
        self._rescuer.add(fallen)
        self.suspects = 0
        self._rescuing.asked = True
        self._wake.set()

    def drained(self, question: object) -> bool:
        """Tell whether a look made since this question was first put found no job due, parked for us, suspect or lost."""
        answer = self._answer
        if answer is not None and answer[0] == question:
            self._answer = None
            return answer[1]
        self._question = question
        self._looking.asked = True
        self._wake.set()
        return False

    @property
    def cut_off(self) -> bool:
        return self._link.cut_off

    def _loop(self) -> None:
        while True:
            pause = self._tick()
            if self.refused or (self._ending and not self._rescuer.waiting):
                self._link.close()
                self.ready.set()
                return
            self._wake.wait(pause)
            self._wake.clear()

    def _tick(self) -> float:
        """Do what is due; return the seconds until something is."""
        try:
            with self._link.guarded():
                self._link.connect()
                if not self._begun:
                    self._begin()
        except Exception as error:
            return self._after_error("Starting", error)
        for duty in self._duties:
            if not duty.is_due:
                continue
            try:
                duty.asked = False
                with self._link.guarded():
                    duty.due = time.monotonic() + duty.do()
            except Exception as error:
                pause = self._after_error(duty.name, error)
                duty.due = time.monotonic() + pause
                if self._link.cut_off:
                    self._beating.due = 0.0
                    return pause
        pause = self._link.check()
        if pause:
            self._beating.due = 0.0
            return pause
        self.ready.set()
        return max(min(duty.due for duty in self._duties) - time.monotonic(), 0.0)  # asked: then we are woken

    def _after_error(self, what: str, error: Exception) -> float:
        """Decide what an error means for the connection; return the seconds until the next try."""
        refused = str(error) if isinstance(error, ConfigurationError) else missing_tables(error, self._engine.alias)
        if refused and not self._begun:
            self.refused = refused
            return 0.0
        pause = self._link.failed(what, error)
        if pause is None:
            if took_too_long(error):
                self._fitness.broken()  # then others could not extend their leases either
            return self._settings.heartbeat / 3
        self._fitness.broken()
        return pause

    def _begin(self) -> None:
        list(Job.objects.using(self._engine.alias).order_by("pk")[:1])
        WorkerRow.objects.using(self._engine.alias).first()
        deployment.begin(self._engine, self._settings.deployment)
        # As worker processes do: what it takes is shared with all that are forked afterwards.
        self._engine.look(self._plan.queues, self._plan.types)
        if not self._engine.reaps_by_lease:
            self._take_back_orphans()
        log.started(
            self._engine.describe(),
            self._engine.alias,
            "all" if self._plan.queues is None else ", ".join(self._plan.queues),
            self._settings.processes,
            self._settings.threads,
            len(self._plan.types),
            self._settings.lease,
        )
        self._begun = True

    def _take_back_orphans(self) -> None:
        """On SQLite: whatever runs when we start was run by a tree that is gone, since we hold the file's lock."""
        while rescue.reap(self._engine, self._settings.max_uncounted, "its workers were gone at the next start"):
            pass
        WorkerRow.objects.using(self._engine.alias).all().delete()

    def _beat(self) -> float:
        self._pulse.beat()
        self._answering.asked |= self._pulse.orders.waiting
        self.lost = self._owner.refuses()
        if self._pulse.orders.stop_asked or self.lost:
            self._ring()
        if self._engine.reaps_by_lease:
            self._observe_clock()
        return self._settings.heartbeat * random.uniform(0.9, 1.0)

    def _observe_clock(self) -> None:
        with self._engine.connection.cursor() as cursor:
            cursor.execute("SELECT CURRENT_TIMESTAMP")
            self._fitness.observe(cursor.fetchone()[0].timestamp(), time.monotonic())

    def _rescue(self) -> float:
        # What is taken back may be a suspect, and whoever ran one may run another.
        self._suspecting.asked |= self._rescuer.waiting
        self._rescuer.rescue()
        return RESCUE_SECONDS if self._rescuer.busy else math.inf

    def _reap(self) -> float:
        self._cancel_expired()
        if not self._engine.reaps_by_lease:
            self._take_back_strays()
        elif self._fitness.fit(time.monotonic()):
            if self._engine.expired_exist() and self._reap_expired() == rescue.BATCH:
                return 0.0  # more, after the heartbeat if that is due
            self._forget_silent()
        return self._settings.heartbeat * random.uniform(0.7, 1.0)

    def _reap_expired(self) -> int:
        # Ours first: a row that somebody held for longer than a lease, and let go just now, is no lost run.
        self._pulse.beat()
        number = rescue.reap(self._engine, self._settings.max_uncounted)
        self._suspecting.asked |= number > 0
        return number

    def _forget_silent(self) -> None:
        """Delete the rows of worker processes that have been silent for long, once in a lease."""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + self._settings.lease
            forget_silent(self._engine, timedelta(seconds=SILENT_LEASES * self._settings.lease))

    def _cancel_expired(self) -> None:
        total = number = self._engine.cancel_expired(rescue.BATCH)
        while number == rescue.BATCH:
            self._pulse.beat()
            number = self._engine.cancel_expired(rescue.BATCH)
            total += number
        if total:
            log.jobs_expired(total)

    def _take_back_strays(self) -> None:
        """On SQLite no lease runs out: a running job that at two looks was in no seat of ours goes back."""
        seen = self._pulse.strays()
        lost = [(run, 0.0) for run in seen & self._strays]
        rescue.lose(
            self._engine,
            lost,
            cause=LEASE_RAN_OUT,
            error="The run was lost: no worker process has it.",
            worker=socket.gethostname(),
            witnessed=False,
            max_uncounted=self._settings.max_uncounted,
        )
        self._suspecting.asked |= bool(lost)
        self._strays = seen

    def _look_for_suspects(self) -> float:
        """Find out how many suspects are to be run alone now, and when to look again."""
        settings = self._settings
        found = self._engine.suspects_due(self._plan.queues, self._plan.types, settings.solo_processes)
        self.suspects = found.count(0.0)
        if self.suspects:
            self._ring()
        # A look for those that wait for a free process is made when one has ended.
        later = [seconds for seconds in found if seconds > 0]
        return min([*later, settings.heartbeat * random.uniform(0.7, 1.0)])

    def _look(self) -> float:
        question = self._question
        found = self._engine.look(self._plan.queues, self._plan.types)
        suspects = self._engine.suspects_due(self._plan.queues, self._plan.types, 1)
        due = found.due_in == 0 or found.parked or self._engine.expired_exist() or self._rescuer.waiting
        due = due or 0.0 in suspects
        self._answer = (question, not due)
        return math.inf
