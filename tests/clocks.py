"""Clocks that are off, for processes that are started with them. It needs no Django."""

from __future__ import annotations

import subprocess
from pathlib import Path


def wrong_clock(skew: str) -> dict[str, str]:
    """Return the environment of a process whose clock is off by so much, as "+2h", and its monotonic clock is not."""
    _remove_what_faketime_left()
    # The library itself, and not the program faketime, which would stay as a parent of what is to be killed.
    library = subprocess.run(
        ["faketime", "-f", skew, "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {"LD_PRELOAD": library, "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _remove_what_faketime_left() -> None:
    """Remove the shared memory of its killed processes: one that gets the pid of such a process does not start."""
    for path in Path("/dev/shm").glob("*faketime_*_*"):
        pid = path.name.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
