"""The process that `runworkers` is: it starts, watches and replaces worker processes, and handles signals."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
from typing import Any

from django_jobs import log, notify
from django_jobs.engines import engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.queue import told
from django_jobs.schedules import log as schedule_log
from django_jobs.workers import posix, stacks, teller
from django_jobs.workers.connections import configure_connections, longest_wait
from django_jobs.workers.crew import Crew
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.draining import Drainer
from django_jobs.workers.fallen import Rescuer
from django_jobs.workers.heart import Heart
from django_jobs.workers.listener import Listener
from django_jobs.workers.lockfile import take_file
from django_jobs.workers.maintenance import Maintenance
from django_jobs.workers.orders import Orders
from django_jobs.workers.outage import Outage
from django_jobs.workers.plan import Plan
from django_jobs.workers.pulse import Pulse
from django_jobs.workers.scheduler import Scheduler
from django_jobs.workers.seats import SeatMap, State

TICK_SECONDS = 0.5
# Regions of the seats, and doorbells, for processes that are being replaced: two for each that is wanted, one for a solo
# one, and so many at most, since each costs file descriptors.
MOST_SPARE = 32
SUMMARY_SECONDS = 1.0
# Worker processes do not wait longer for a scheduler that is slow to begin.
BEGIN_SECONDS = 1.0
# With the database cut off, what is left to write is given up then: the whole stop takes the grace and five seconds.
END_SECONDS = 4.0

CLEAN, REFUSED, RUNS_CUT, DATABASE_AWAY = 0, 2, 3, 4


class Supervisor:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._engine = engine(plan.alias)
        processes, solo = plan.settings.processes, plan.settings.solo_processes
        self._seats = SeatMap(processes + min(2 * processes, MOST_SPARE), solo + min(solo, MOST_SPARE))
        self._bell = Doorbell()
        self._crew = Crew(plan, self._seats, lambda fallen: self._heart.rescue(fallen))
        self._drainer = Drainer(plan, self._crew)
        self._orders = Orders(self._engine, plan, self._seats, self._crew.ring)
        pulse = Pulse(
            self._engine, plan, self._seats, lambda: self._crew.living, lambda: self._listener.listens, self._orders
        )
        rescuer = Rescuer(self._engine, plan.settings.lease, plan.settings.max_uncounted, plan.settings.backoff)
        outage = Outage("supervisor", plan.settings.lease)
        self._heart = Heart(self._engine, plan, pulse, rescuer, outage, self._bell.ring)
        self._scheduler = Scheduler(self._engine, plan.settings, outage) if plan.schedule else None
        self._listener = Listener(self._engine, plan, outage, self._crew.waker)
        self._maintenance = Maintenance(self._engine, plan.settings, outage)
        self._teller = teller.Teller()
        self._refusal = ""
        self._signals: list[int] = []
        self._stop_deadline: float | None = None
        self._stopped_before = 0
        self._awake_at = self._awake_since = time.monotonic()
        self._counted: dict[str, int] = {}
        self._summary_at = 0.0
        self._hang_seconds = 0.0

    @notify.for_workers()
    def run(self) -> int:
        """Work until a signal or, with burst, until nothing is due; return the exit code.

        Raises ConfigurationError when it cannot start: another supervisor on this SQLite file, or missing tables.
        """
        configure_connections("supervisor", self._settings.lease)
        self._hang_seconds = max(self._settings.lease, longest_wait(self._plan.alias, self._settings.lease) + 5.0)
        file = take_file(self._plan.alias, self._settings.lease) if self._engine.name == "sqlite" else None
        told.post_by(self._teller.put)
        self._handle_signals()
        posix.adopt_orphans()
        stacks.make_room(self._plan.supervisor)
        self._heart.start()
        try:
            if self._wait_until_ready():
                self._begin_beside()
                self._bell.ring()  # the first round waits for nothing, and forks the template
                self._loop()
            return self._finish()
        except BaseException:
            self._crew.end_all("the supervisor failed")
            self._end_beside(0.0)
            self._heart.end(END_SECONDS)
            raise
        finally:
            stacks.remove_room(self._plan.supervisor)
            if file is not None:
                os.close(file)  # a program may have the command run once more

    def _begin_beside(self) -> None:
        """Have all threads begin before the fork: what is imported and built by then is shared with all children."""
        self._start_beside()
        if self._scheduler is not None:
            self._scheduler.ready.wait(BEGIN_SECONDS)

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGQUIT, self._on_quit)

    def _on_stop_signal(self, number: int, frame: Any) -> None:
        self._signals.append(number)
        self._bell.ring()

    def _on_quit(self, number: int, frame: Any) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
        for pid in self._crew.pids:
            try:
                os.kill(pid, signal.SIGQUIT)
            except ProcessLookupError:
                pass

    def _wait_until_ready(self) -> bool:
        while not self._heart.ready.wait(0.1):
            if self._signals:
                return False
        if self._heart.refused:
            self._crew.dismiss_template()
            raise ConfigurationError(self._heart.refused)
        return True

    def _loop(self) -> None:
        while True:
            self._wait()
            self._crew.hear()
            if self._stop_deadline is None and (why := self._why_to_stop()):
                self._begin_stop(why)
            self._crew.watch_template(self._awake_since)
            if self._stop_deadline is not None:
                if self._crew.all_gone:
                    return
                self._end_grace(self._stop_deadline)
            elif self._crew.channel is None:
                self._restore_template()
            else:
                self._heart.revive()
                self._revive_beside()
                self._drainer.look(self._awake_since, self._heart.cut_off)
                self._crew.start_missing()
                self._heart.suspects -= self._crew.start_solo(self._heart.suspects)
                self._replace_hanging()
                self._stop_when_drained()
            self._summarise()

    def _why_to_stop(self) -> str:
        if self._signals:
            return signal.Signals(self._signals[0]).name
        return "A person asked to stop" if self._orders.stop_asked else self._heart.lost

    def _wait(self) -> None:
        sources: list[Any] = [self._bell] if self._crew.channel is None else [self._bell, self._crew.channel]
        ready, _, _ = select.select(sources, [], [], TICK_SECONDS)
        if self._bell in ready:
            self._bell.wait(0)
        while posix.reap(-1):
            pass  # what jobs left behind became our children when its parent died
        now = time.monotonic()
        if now - self._awake_at > 4 * TICK_SECONDS:
            self._awake_since = now  # frozen, and our children with us: they are given time to say that they live
        self._awake_at = now

    def _restore_template(self) -> None:
        """Fork a new template as soon as our threads have ended, since a fork copies no other thread."""
        self._teller.pause(0.0)
        if self._end_beside(TICK_SECONDS) and self._teller.pause(TICK_SECONDS) and self._heart.end(TICK_SECONDS):
            self._crew.fork_template()
            self._teller.resume()
            self._heart.start()
            self._start_beside()
            self._bell.ring()  # for the processes to be started

    def _start_beside(self) -> None:
        """Start the threads that neither leases nor lost jobs depend on."""
        self._listener.start()
        if self._scheduler is not None:
            self._scheduler.start()
        self._maintenance.start()

    def _revive_beside(self) -> None:
        self._listener.revive()
        self._maintenance.revive()
        if self._scheduler is None:
            return
        if self._scheduler.refused and self._scheduler.refused != self._refusal:
            self._refusal = self._scheduler.refused
            schedule_log.scheduler_refused(self._refusal)
        self._scheduler.revive()

    def _end_beside(self, timeout: float) -> bool:
        """End all threads but the heart; return whether they did in `timeout` seconds."""
        until = time.monotonic() + timeout
        # Told first, waited for last: it does no work that anybody waits for.
        tidied = self._maintenance.end(0.0)
        ended = self._listener.end(timeout)
        ended = (self._scheduler is None or self._scheduler.end(max(until - time.monotonic(), 0.0))) and ended
        return (tidied or self._maintenance.end(max(until - time.monotonic(), 0.0))) and ended

    def _replace_hanging(self) -> None:
        if self._heart.cut_off:
            return
        now = time.monotonic()
        for place in self._crew.places:
            if place.child is None or place.killed_for:
                continue
            excused = max(place.started_at, place.excused_at, self._awake_since)
            claims_silent, writes_silent = (now - max(tick, excused) for tick in place.region.ticks)
            silent = max(claims_silent, writes_silent)
            if silent < 2 * TICK_SECONDS:
                continue
            states = {seat.state for seat in place.region.seats()}
            if State.RUNNING in states and min(claims_silent, writes_silent) >= TICK_SECONDS:
                # Both are silent: a handler may hold the interpreter, as long as it likes.
                place.excused_at = now
            # With outcomes still to be stored it may be waiting for the database, which has time-outs of its own.
            elif silent > (3 if State.RETURNED in states else 1) * self._hang_seconds:
                log.worker_hangs(place.child.pid, silent)
                self._crew.kill(place, "its process did not answer")

    def _stop_when_drained(self) -> None:
        scheduled = self._scheduler is None or self._scheduler.at_rest
        if self._plan.burst and scheduled and self._crew.all_idle and self._heart.drained(self._crew.counters()):
            self._begin_stop("Nothing is due")

    def _begin_stop(self, why: str) -> None:
        log.stopping(why, self._settings.shutdown_grace)
        grace = self._settings.shutdown_grace
        self._stop_deadline = time.monotonic() + grace
        self._end_beside(0.0)
        self._stopped_before = self._crew.counters().get("stopped", 0)
        self._crew.ask_to_stop(self._plan.cut_at(self._stop_deadline, grace))

    def _end_grace(self, deadline: float) -> None:
        if time.monotonic() < deadline and len(self._signals) < 2:
            return
        places = [place for place in self._crew.places if place.child is not None and not place.killed_for]
        if places:
            log.grace_over(sum(place.running for place in places))
        for place in places:
            self._crew.kill(place, "stopped by a signal when the grace was over")

    def _summarise(self) -> None:
        now = time.monotonic()
        if now < self._summary_at:
            return
        self._summary_at = now + SUMMARY_SECONDS
        totals = self._crew.counters()
        new = {name: number - self._counted.get(name, 0) for name, number in totals.items()}
        if any(new.values()):
            log.summary(new, sum(place.running for place in self._crew.places))
        self._counted = totals

    def _finish(self) -> int:
        self._summary_at = 0.0
        self._summarise()
        began = time.monotonic()
        self._end_beside(END_SECONDS / 2)
        all_back = self._heart.end(began + END_SECONDS - time.monotonic())
        self._teller.end(teller.END_SECONDS)
        self._crew.dismiss_template()
        if self._heart.cut_off:
            code = DATABASE_AWAY
        elif self._heart.lost:
            code = REFUSED
        else:
            cancelled = self._crew.counters().get("stopped", 0) - self._stopped_before
            code = RUNS_CUT if self._crew.cut or cancelled or not all_back else CLEAN
        log.stopped(code)
        return code
