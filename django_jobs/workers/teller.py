"""The thread of a supervisor that tells receivers of signals: none of theirs may keep a heartbeat or a schedule waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from django.db import connections

from django_jobs import log


class Teller:
    """Tells in the order given. The thread is there only while there is something to be told."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, tell: Callable[[], None]) -> None:
        self._waiting.put(tell)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="django_jobs-teller", daemon=True)
                self._thread.start()

    def end(self, timeout: float) -> None:
        """Wait until all is told, or so many seconds."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _loop(self) -> None:
        while not self._is_over():
            try:
                tell = self._waiting.get_nowait()
            except Empty:
                continue
            try:
                tell()
            except BaseException:
                log.loop_failed("A receiver of a signal")
            connections.close_all()

    def _is_over(self) -> bool:
        with self._lock:
            if self._waiting.empty():
                self._thread = None
                return True
            return False
