"""The process that forks worker processes: single-threaded, with the project imported and no connection open."""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_jobs import log, tracing
from django_jobs.engines import engine
from django_jobs.logging import say_in_runs
from django_jobs.queue import told
from django_jobs.workers import posix, stacks
from django_jobs.workers.channel import Channel
from django_jobs.workers.connections import configure_connections
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.plan import Plan
from django_jobs.workers.seats import Phase, SeatMap
from django_jobs.workers.solo import SoloWorker
from django_jobs.workers.teller import END_SECONDS, PATIENCE_SECONDS, Teller
from django_jobs.workers.waking import Waker
from django_jobs.workers.worker import Worker

TICK_SECONDS = 1.0


def fork_template(plan: Plan, seats: SeatMap, doorbells: list[Doorbell]) -> tuple[int, Channel]:
    """Fork the template from a process without other threads; return its pid and the supervisor's end of the channel."""
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    connections.close_all()
    # Here, and not in the children: looking for garbage writes to every object, and so ends the sharing of its page.
    gc.collect()
    gc.freeze()
    if sys.version_info < (3, 12):
        # Else each process counts references up and down for the names of what it looks up: later versions do not count them.
        sys._clear_type_cache()
    posix.give_back_memory()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Channel(ours)
    ours.close()
    told.post_by(told.at_once)  # the thread that tells is the supervisor's, and its lock may have been held
    _run_forked(lambda: _Template(plan, seats, doorbells, Channel(theirs)).serve())
    raise AssertionError("a forked process came back")


def _run_forked(main: Callable[[], None]) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        # Handlers that do nothing, instead of SIG_IGN: what a job starts as a subprocess would inherit that.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        if sys.stderr is not None:
            faulthandler.register(signal.SIGQUIT)
        main()
        code = 0
    except BaseException:
        log.loop_failed(f"Process {os.getpid()}")
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # also of None: it may have been closed before we started
        os._exit(code)


def _reset_signals() -> None:
    """What a job forks, by multiprocessing for example, must end when it is told to."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class _Template:
    def __init__(self, plan: Plan, seats: SeatMap, doorbells: list[Doorbell], channel: Channel) -> None:
        self._plan = plan
        self._seats = seats
        self._doorbells = doorbells
        self._channel = channel
        self._children: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self) -> None:
        # Nobody types to a process in the background: reading from the terminal would stop it.
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        while True:
            sources: list[Any] = [self._channel, self._wake_read]
            select.select(sources, [], [], TICK_SECONDS)
            self._seats.tick_template()
            self._drain_wakeups()
            self._reap()
            messages = self._channel.receive()
            if messages is None:
                self._outlive_supervisor()
                return
            for message in messages:
                self._spawn(message["index"], message["incarnation"], message["solo"])

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _spawn(self, index: int, incarnation: str, solo: bool) -> None:
        template = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # no memory, or too many processes: to be tried again later
            log.loop_failed("Forking a worker process")
            self._channel.send(event="refused", index=index)
            return
        if not pid:
            self._channel.close()
            _run_forked(lambda: self._work(index, incarnation, template, solo))
        self._children[pid] = index
        self._channel.send(event="started", index=index, pid=pid)

    def _work(self, index: int, incarnation: str, template: int, solo: bool) -> None:
        # Whoever forks us watches us: without it nobody would see that this process outlives its leases.
        posix.die_with(template)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.register_at_fork(after_in_child=_reset_signals)
        if solo:
            posix.be_killed_first()
        say_in_runs()
        configure_connections("solo" if solo else "worker", self._plan.settings.lease)
        stacks.answer_in(self._plan.supervisor, index)
        region = self._seats.regions[index]
        kind = SoloWorker if solo else Worker
        plan = self._plan.of_process(solo)
        try:
            waker = Waker(self._seats.regions, self._doorbells, index)
            beside = Teller(patience=min(PATIENCE_SECONDS, plan.settings.lease / 3), waits=True)
            told.post_by(beside.put)
            kind(
                engine(plan.alias), plan, incarnation, self._seats, index, self._doorbells[index], template, waker
            ).run()
            beside.end(END_SECONDS)
            tracing.flush()
        except BaseException:
            region.set_phase(Phase.FAILED)
            raise

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            index = self._children.pop(pid, None)
            if index is not None:
                posix.end_group(pid)
                self._channel.send(event="died", index=index, pid=pid, code=os.waitstatus_to_exitcode(status))

    def _outlive_supervisor(self) -> None:
        """Have the children end what they run before their leases do, since nobody extends them any more."""
        for index in self._children.values():
            self._seats.regions[index].orphan()
            self._doorbells[index].ring()
        last = self._seats.last_beat + self._plan.settings.lease * 2 / 3
        while self._children and time.monotonic() < last:
            select.select([self._wake_read], [], [], max(last - time.monotonic(), 0))
            self._drain_wakeups()
            self._reap()
        for pid in self._children:
            posix.end(pid)
        stacks.remove_room(self._plan.supervisor)
