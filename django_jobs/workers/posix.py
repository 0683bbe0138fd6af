"""What worker processes ask of the kernel."""

from __future__ import annotations

import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of our children's children when theirs dies, so that their end can be waited for (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, is gone (Linux)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def be_killed_first() -> None:
    """Have the kernel choose this process before any other when memory runs out (Linux)."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # not Linux


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
