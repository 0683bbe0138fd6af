"""What the system knows of trees of processes: who is in them, what memory they share, what processor time they took."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from benchmarks.idle import pss, tree_of

__all__ = ["cpu", "end", "kill", "memory", "tree_of"]

TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cpu(pid: int) -> float:
    """Return the seconds of processor time that a tree took, with the children that it has waited for."""
    return sum(_times(each) for each in tree_of(pid)) / TICK


def memory(pid: int) -> float:
    """Return the proportional share of memory of a tree in MiB."""
    total = 0.0
    for each in tree_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += pss(each)
    return total


def kill(pid: int) -> None:
    """Kill a whole tree, as if the machine lost its power: nothing in it can react to the death of another part."""
    tree = tree_of(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """End a tree in order within so many seconds, else by force."""
    if patience:
        process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        kill(process.pid)
        process.wait()


def _times(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))
