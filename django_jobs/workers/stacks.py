"""The stacks of all threads of a worker process, on demand of its supervisor.

A signal has the child write them, by a handler in C that needs no interpreter: so also while a handler holds that. They go
into a file of the child's own, in a directory of this `runworkers`. Only code is in them: files, lines and functions.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import tempfile

# Nothing else uses it, so that QUIT can go on to print them.
SIGNAL = int(getattr(signal, "SIGRTMIN", signal.SIGUSR2))
LONGEST = 65_536
CUT = "\n(cut here)\n"


def _directory(supervisor: str) -> str:
    return os.path.join(tempfile.gettempdir(), f"django_jobs-{supervisor}")


def _path(supervisor: str, index: int) -> str:
    return os.path.join(_directory(supervisor), str(index))


def make_room(supervisor: str) -> None:
    try:
        os.mkdir(_directory(supervisor), 0o700)
    except OSError:
        pass  # then nobody answers


def remove_room(supervisor: str) -> None:
    shutil.rmtree(_directory(supervisor), ignore_errors=True)


def answer_in(supervisor: str, index: int) -> None:
    """Have this process, the one in region `index`, answer to the signal, which else would end it."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        faulthandler.register(SIGNAL, file=os.open(_path(supervisor, index), flags, 0o600), all_threads=True)
    except OSError:
        signal.signal(SIGNAL, lambda *_: None)


def ask(pid: int) -> None:
    try:
        os.kill(pid, SIGNAL)
    except ProcessLookupError:
        pass


def size(supervisor: str, index: int) -> int:
    """Return how much the process in a region has written, which grows while it does."""
    try:
        return os.stat(_path(supervisor, index)).st_size
    except OSError:
        return 0


def take(supervisor: str, index: int) -> str:
    """Return what the process in a region has written, cut to 64 KiB, and make room for the next answer."""
    try:
        with open(_path(supervisor, index), "r+b") as file:
            found = file.read(LONGEST + 1)
            file.truncate(0)
    except OSError:
        return ""
    text = found[:LONGEST].decode("utf-8", "replace").replace("\x00", "")
    return text[: LONGEST - len(CUT)] + CUT if len(found) > LONGEST else text
