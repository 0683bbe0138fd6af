"""`runworkers --reload`: a process that watches the files, and has the workers as its child, so that new code is new processes.

What it watches, and how, is Django's: its reloader, and the receivers that add templates and translations. Django's own way of
starting again needs the command on a thread, and the supervisor forks.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from django.utils import autoreload

from django_jobs.workers import broken_start, posix, reload_log
from django_jobs.workers.broken_start import WATCHED_BY


def is_watched() -> bool:
    """Tell whether this process is the child of one that watches; from then on it does not outlive that one (Linux)."""
    parent = os.getppid()
    if os.environ.pop(WATCHED_BY, "") != str(parent):
        return False
    posix.die_with(parent, signal.SIGTERM)
    return True


def run() -> int:
    """Run the command of this process as a child, again whenever a file has changed; return the exit code of the last one."""
    return _Watching().run()


class _Watching:
    def __init__(self) -> None:
        self._changed: Path | None = None
        self._stopping = False
        self._child: subprocess.Popen[bytes] | None = None
        self._reloader = autoreload.get_reloader()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._pass_on)
        autoreload.file_changed.connect(self._note_change)
        autoreload.autoreload_started.send(sender=self._reloader)
        broken_start.watch_apps(self._reloader)
        reload_log.watching(type(self._reloader).__name__)
        return self._run()

    def _run(self) -> int:
        ticker = self._reloader.tick()  # each step looks at all files, and takes about a second
        self._start()
        reloads = 0
        while True:
            next(ticker)
            code = self._child.poll() if self._child is not None else None
            if self._changed is not None and not self._stopping:
                reload_log.changed(self._changed)
                self._end_child(ticker)
                self._changed = None
                reloads += 1
                if not self._stopping:
                    self._start()
            elif code is not None:
                if self._stopping or code == 0 or not reloads:
                    return code
                reload_log.waits_for_change(code)
                self._child = None
            elif self._child is None and self._stopping:
                return 0

    def _start(self) -> None:
        self._child = subprocess.Popen(
            autoreload.get_child_arguments(),
            env={**os.environ, WATCHED_BY: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            # Ctrl-C is ours to pass on: twice, it would end the grace.
            process_group=0,
        )
        if self._stopping:  # meanwhile
            self._child.terminate()

    def _end_child(self, ticker: Any) -> None:
        """Have the workers stop in order; what changes meanwhile is in what is started then."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
        while self._child.poll() is None:
            next(ticker)

    def _pass_on(self, number: int, frame: Any) -> None:
        self._stopping |= number != signal.SIGQUIT
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _note_change(self, file_path: Path, **kwargs: Any) -> bool:
        self._changed = file_path
        return True  # else Django would end this process
