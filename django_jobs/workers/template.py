"""The process that forks worker processes: single-threaded, with the project imported and no connection open."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_jobs import log
from django_jobs.engines import engine
from django_jobs.workers.connections import configure_connections
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.seats import SeatMap
from django_jobs.workers.worker import Plan, Worker


class Channel:
    """A line of JSON messages between supervisor and template."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = b""

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self._end.close()

    def send(self, **message: Any) -> None:
        self._end.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that came, None when the other side is gone."""
        try:
            received = self._end.recv(65536)
        except ConnectionError:
            return None
        if not received:
            return None
        *lines, self._received = (self._received + received).split(b"\n")
        return [json.loads(line) for line in lines]


def fork_template(plan: Plan, seats: SeatMap, doorbells: list[Doorbell]) -> tuple[int, Channel]:
    """Fork the template from a process without other threads; return its pid and the supervisor's end of the channel."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    connections.close_all()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Channel(ours)
    ours.close()
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
                pass
        os._exit(code)


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
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        while True:
            select.select([self._channel, self._wake_read], [], [])
            self._drain_wakeups()
            self._reap()
            messages = self._messages()
            if messages is None:
                self._outlive_supervisor()
                return
            for message in messages:
                self._spawn(message["index"], message["incarnation"])

    def _messages(self) -> list[dict[str, Any]] | None:
        if not select.select([self._channel], [], [], 0)[0]:
            return []
        return self._channel.receive()

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _spawn(self, index: int, incarnation: str) -> None:
        pid = os.fork()
        if not pid:
            self._channel.close()
            _run_forked(lambda: self._work(index, incarnation))
        self._children[pid] = index
        self._tell(event="started", index=index, pid=pid)

    def _work(self, index: int, incarnation: str) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        configure_connections("worker", self._plan.settings.lease)
        found = engine(self._plan.alias)
        Worker(found, self._plan, incarnation, self._seats.regions[index], self._doorbells[index]).run()

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            index = self._children.pop(pid, None)
            if index is not None:
                self._tell(event="died", index=index, pid=pid, code=os.waitstatus_to_exitcode(status))

    def _tell(self, **message: Any) -> None:
        try:
            self._channel.send(**message)
        except OSError:
            pass  # the supervisor is gone: the next receive says so

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
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
