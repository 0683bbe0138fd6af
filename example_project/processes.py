"""Children that end with the process that started them, even when that is killed (on Linux)."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def spawn(command: Sequence[str], *, at_our_end: signal.Signals, **options: Any) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, out of reach of the terminal's Ctrl-C: that is for us, who then stop the
    child in order. The kernel sends it `at_our_end` when the thread that called this ends: call it from the main one.
    """
    with warnings.catch_warnings():
        # Python 3.12 warns of forks in processes with threads; the child only calls prctl, looked up before.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=functools.partial(_libc.prctl, _PR_SET_PDEATHSIG, at_our_end) if _libc else None,
            **options,
        )
