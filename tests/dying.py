"""Settings of a process whose scheduler's thread is ended, once, as soon as a file is there."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

from tests.settings import *  # noqa: F403


def end_thread() -> None:
    path = Path(os.environ["DJANGO_JOBS_TEST_END_THREAD"])
    while not path.exists():
        time.sleep(0.05)
    (ident,) = [thread.ident for thread in threading.enumerate() if thread.name == "django_jobs-scheduler"]
    # SystemExit ends a thread and is no `Exception` that a loop would catch.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(SystemExit))


threading.Thread(target=end_thread, daemon=True).start()
