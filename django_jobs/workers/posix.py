"""What worker processes ask of the kernel."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MADV_DONTNEED = 4
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ +(/.*)")


def adopt_orphans() -> None:
    """Become the parent of our children's children when theirs dies, so that their end can be waited for (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int, by: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when `parent`, which forked it, is gone (Linux)."""
    _prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def be_killed_first() -> None:
    """Have the kernel choose this process before any other when memory runs out (Linux)."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # not Linux


def give_back_memory() -> None:
    """Return to the kernel what only the start needed: free memory, and the parts of libraries read by then (Linux).

    What is needed after all is mapped again, from the page cache.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        for start, end in _only_read():
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED)
    except (AttributeError, OSError):
        pass  # not Linux, or not with this C library


def _only_read() -> Iterator[tuple[int, int]]:
    """Yield where the files are mapped of which no page was written: not those that the loader has relocated."""
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as smaps:
        lines = smaps.readlines()
    where = None
    for line in lines:
        if not line[0].isupper():
            found = _MAPPING.match(line)
            where = (int(found[1], 16), int(found[2], 16)) if found and found[3] in ("r-xp", "r--p") else None
        elif where is not None and line.split() == ["Anonymous:", "0", "kB"]:
            yield where


def _prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    except (AttributeError, OSError):
        pass  # not Linux


def end_group(pid: int) -> None:
    """Kill what the jobs of a dead process started: a second run must not meet the first one's subprocesses.

    As long as any of them lives, the kernel gives the number to no other process.
    """
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def end(pid: int) -> None:
    """Kill a process that was not waited for yet, and its group if it has made one."""
    end_group(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def reap(pid: int) -> int | None:
    """Wait, without blocking, for a child, -1 for any; return the pid of one that ended, 0 for none, None for no child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0]
    except ChildProcessError:
        return None


def wait_for_end(pid: int, seconds: float) -> None:
    """Wait for a process, whether it is our child or a grandchild that has just become one."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = reap(pid)
        if found or (found is None and not exists(pid)):
            return
        time.sleep(0.01)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def how_it_ended(code: int) -> str:
    """Say in words what the exit code of a process means, negative for signals."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
