"""The process that `runworkers` is: it starts, watches and replaces worker processes, and handles signals."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connections

from django_jobs import log
from django_jobs.engines import engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.workers.connections import configure_connections
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.heart import Child, Fallen, Heart
from django_jobs.workers.lockfile import lock
from django_jobs.workers.seats import Phase, SeatMap, State
from django_jobs.workers.template import Channel, fork_template
from django_jobs.workers.worker import Plan

TICK_SECONDS = 0.5
HANG_SECONDS = 10.0
QUICK_DEATH_SECONDS = 10.0
LONGEST_RESTART_PAUSE = 30.0
STOP_SECONDS = 5.0

CLEAN, USAGE, RUNS_CUT, DATABASE_AWAY = 0, 2, 3, 4
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class _Place:
    """Where one worker process lives, across its incarnations."""

    index: int
    child: Child | None = None
    starting: str | None = None
    started_at: float = 0.0
    quick_deaths: int = 0
    start_after: float = 0.0
    killed_for: str | None = None


class Supervisor:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._engine = engine(plan.alias)
        self._seats = SeatMap(plan.settings.processes)
        self._doorbells = [Doorbell() for _ in self._seats.regions]
        self._bell = Doorbell()
        self._places = [_Place(index) for index in range(plan.settings.processes)]
        self._signals: list[int] = []
        self._stop_deadline: float | None = None
        self._cut = 0
        self._counted: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._summary_at = 0.0

    def run(self) -> int:
        """Work until a signal or, with burst, until nothing is due; return the exit code.

        Raises ConfigurationError when it cannot start: another supervisor on this SQLite file, or missing tables.
        """
        if self._engine.name == "sqlite":
            self._lock_file()
        self._handle_signals()
        _adopt_orphans()
        self._fork_template()
        try:
            if self._wait_until_ready():
                self._loop()
            return self._finish()
        except BaseException:
            self._kill_all("the supervisor failed")
            raise

    def _lock_file(self) -> None:
        name = str(connections[self._plan.alias].settings_dict["NAME"])
        if name == ":memory:" or "mode=memory" in name:
            raise ConfigurationError("An SQLite database in memory cannot be shared with workers; give NAME a file.")
        lock(name, wait=self._plan.settings.lease)
        raw = connections[self._plan.alias]
        with raw.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
        raw.close()

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGQUIT, self._on_quit)

    def _on_stop_signal(self, number: int, frame: Any) -> None:
        self._signals.append(number)
        self._bell.ring()

    def _on_quit(self, number: int, frame: Any) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        for pid in [self._template_pid, *(place.child.pid for place in self._places if place.child)]:
            os.kill(pid, signal.SIGQUIT)

    def _fork_template(self) -> None:
        self._template_pid, self._channel = fork_template(self._plan, self._seats, self._doorbells)
        configure_connections("supervisor", self._plan.settings.lease)
        self._heart = Heart(self._engine, self._plan, self._seats, self._living)
        self._heart.start()

    def _living(self) -> list[Child]:
        return [place.child for place in self._places if place.child is not None]

    def _wait_until_ready(self) -> bool:
        while not self._heart.ready.wait(0.1):
            if self._signals:
                return False
        if self._heart.refused:
            self._channel.close()
            os.waitpid(self._template_pid, 0)
            raise ConfigurationError(self._heart.refused)
        return True

    def _loop(self) -> None:
        while True:
            ready, _, _ = select.select([self._channel, self._bell], [], [], TICK_SECONDS)
            if self._bell in ready:
                self._bell.wait(0)
            if self._channel in ready:
                self._hear(self._channel)
            if self._stop_deadline is None and self._signals:
                self._begin_stop(signal.Signals(self._signals[0]).name)
            if self._stop_deadline is not None:
                if not self._living() and not any(place.starting for place in self._places):
                    return
                self._end_grace()
            else:
                self._start_missing()
                self._replace_hanging()
                self._stop_when_drained()
            self._summarise()

    def _hear(self, channel: Channel) -> None:
        messages = channel.receive()
        if messages is None:
            self._replace_template()
            return
        for message in messages:
            place = self._places[message["index"]]
            if message["event"] == "started":
                assert place.starting is not None
                place.child = Child(index=place.index, incarnation=place.starting, pid=message["pid"])
                place.starting = None
            elif place.child is not None and place.child.pid == message["pid"]:
                self._bury(place, place.child, message["code"])

    def _start_missing(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.child is None and place.starting is None and now >= place.start_after:
                place.starting = uuid.uuid4().hex
                place.started_at = now
                place.killed_for = None
                try:
                    self._channel.send(index=place.index, incarnation=place.starting)
                except OSError:
                    place.starting = None  # the template is gone: the next receive says so
                    return

    def _bury(self, place: _Place, child: Child, code: int) -> None:
        """Take what a dead child left: its counters, and its seats for the heart to rescue."""
        region = self._seats.regions[place.index]
        _end_group(child.pid)
        seats = list(region.seats())
        for name, number in region.counters().items():
            self._gone[name] = self._gone.get(name, 0) + number
        clean = code == 0 and region.phase is Phase.ENDED and not seats
        region.clear()
        place.child = None
        if self._stop_deadline is not None:
            region.ask_to_stop()
        if not clean:
            how = None if place.killed_for else _how(code)
            if how is not None:
                log.worker_died(child.pid, how, len(seats))
            self._heart.rescue(Fallen(child=child, seats=seats, how=how, why=place.killed_for or ""))
        quick = time.monotonic() - place.started_at < QUICK_DEATH_SECONDS
        place.quick_deaths = place.quick_deaths + 1 if quick else 0
        # The first replacements come at once; a process that keeps dying at its start is given more and more time.
        pause = 0.0 if place.quick_deaths <= 2 else min(0.5 * 2 ** (place.quick_deaths - 3), LONGEST_RESTART_PAUSE)
        place.start_after = time.monotonic() + pause

    def _replace_hanging(self) -> None:
        if self._heart.cut_off:
            return
        now = time.monotonic()
        for place in self._places:
            region = self._seats.regions[place.index]
            if place.child is None or place.killed_for or region.phase is Phase.STARTING:
                continue
            silent = now - region.last_tick
            if silent < HANG_SECONDS:
                continue
            states = {seat.state for seat in region.seats()}
            # With outcomes still to be stored it may be waiting for the database, which has time-outs of its own.
            patience = 3 * self._plan.settings.lease if State.RETURNED in states else HANG_SECONDS
            if State.RUNNING not in states and silent > patience:
                log.worker_hangs(place.child.pid, silent)
                self._kill(place, "its process did not answer")

    def _kill(self, place: _Place, why: str) -> None:
        assert place.child is not None
        place.killed_for = why
        _end_group(place.child.pid)

    def _stop_when_drained(self) -> None:
        if not self._plan.burst or not self._all_idle():
            return
        if self._heart.drained() and self._all_idle():
            self._begin_stop("Nothing is due")

    def _all_idle(self) -> bool:
        return all(
            place.child is not None and self._seats.regions[place.index].phase is Phase.IDLE for place in self._places
        )

    def _begin_stop(self, why: str) -> None:
        grace = self._plan.settings.shutdown_grace
        log.stopping(why, grace)
        self._stop_deadline = time.monotonic() + grace
        for region, doorbell in zip(self._seats.regions, self._doorbells, strict=True):
            region.ask_to_stop()
            doorbell.ring()

    def _end_grace(self) -> None:
        assert self._stop_deadline is not None
        if time.monotonic() < self._stop_deadline and len(self._signals) < 2:
            return
        places = [place for place in self._places if place.child is not None and place.killed_for is None]
        running = sum(
            seat.state is State.RUNNING for place in places for seat in self._seats.regions[place.index].seats()
        )
        if places:
            self._cut += running
            log.grace_over(running)
        for place in places:
            self._kill(place, "stopped by a signal when the grace was over")

    def _replace_template(self) -> None:
        """Start anew after the death of the template, which alone can fork: its children cannot be watched any more."""
        log.template_died()
        self._kill_all("the template process died")
        self._heart.end(STOP_SECONDS + self._plan.settings.lease)
        self._channel.close()
        if self._stop_deadline is None:
            for place in self._places:
                place.starting = None
            self._fork_template()

    def _kill_all(self, why: str) -> None:
        for place in self._places:
            if place.child is not None:
                child = place.child
                self._kill(place, why)
                _wait_for_end(child.pid)
                self._bury(place, child, -signal.SIGKILL)

    def _summarise(self) -> None:
        now = time.monotonic()
        if now < self._summary_at:
            return
        self._summary_at = now + 1.0
        totals = dict(self._gone)
        for region in self._seats.regions:
            for name, number in region.counters().items():
                totals[name] = totals.get(name, 0) + number
        new = {name: number - self._counted.get(name, 0) for name, number in totals.items()}
        if any(new.values()):
            running = sum(seat.state is State.RUNNING for region in self._seats.regions for seat in region.seats())
            log.summary(new, running)
        self._counted = totals

    def _finish(self) -> int:
        self._summary_at = 0.0
        self._summarise()
        reached = self._heart.end(STOP_SECONDS)
        self._channel.close()
        _wait_for_end(self._template_pid)
        code = CLEAN
        if self._cut:
            code = RUNS_CUT
        if not reached or self._heart.cut_off:
            code = DATABASE_AWAY
        log.stopped(code)
        return code


def _how(code: int) -> str:
    if code < 0:
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


def _end_group(pid: int) -> None:
    """Kill a child and what its jobs started: a second run must not meet the first one's subprocesses."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _adopt_orphans() -> None:
    """Become the parent of our children's children when the template dies, so that their end can be waited for."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (AttributeError, OSError):
        pass  # not Linux


def _wait_for_end(pid: int) -> None:
    until = time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
        time.sleep(0.02)
