"""What every peer's handler does, and how it leaves its mark: in files that processes map, so that it costs next to nothing.

Each process has files of its own in the directory of the trial: how often each job ran, by its number (a byte each, after
the monotonic time of the first run), and for `timed` when each last started. CLOCK_MONOTONIC is one for the whole machine.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

HEAD = 8  # bytes: the time of the first run

_lock = threading.Lock()
_runs: mmap.mmap | None = None
_starts: mmap.mmap | None = None


def directory() -> Path:
    return Path(os.environ["TALLY"])


def nothing(number: int) -> None:
    (_runs or _opened())[HEAD + number] += 1


def timed(number: int) -> None:
    now = time.monotonic()
    nothing(number)
    assert _starts is not None
    struct.pack_into("d", _starts, 8 * number, now)


def sleep(number: int) -> None:
    nothing(number)
    time.sleep(0.005)


def spin(number: int) -> None:
    """Use the processor for a millisecond."""
    nothing(number)
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass


def hang(number: int) -> None:
    """Hang in the first process that runs it; in a later one, end."""
    first = not any(directory().glob("*.runs"))
    timed(number)
    if first:
        time.sleep(3_600)


async def ahandle(number: int) -> None:
    """Do the same where a coroutine is expected: what waits, waits in the event loop."""
    if handle is sleep:
        nothing(number)
        await asyncio.sleep(0.005)
    elif handle is hang:
        await asyncio.to_thread(hang, number)
    else:
        handle(number)


HANDLERS: dict[str, Callable[[int], None]] = {each.__name__: each for each in (nothing, timed, sleep, spin, hang)}
handle = HANDLERS[os.environ.get("HANDLER", "nothing")]


def _opened() -> mmap.mmap:
    global _runs, _starts
    with _lock:
        if _runs is None:
            jobs = int(os.environ["TALLY_JOBS"])
            _starts = _map(f"{os.getpid()}.starts", 8 * jobs)
            runs = _map(f"{os.getpid()}.runs", HEAD + jobs)
            struct.pack_into("d", runs, 0, time.monotonic())
            _runs = runs
    return _runs


def _map(name: str, size: int) -> mmap.mmap:
    with (directory() / name).open("w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)
