"""The workers of the demo: `manage.py runworkers` as a child."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from django.core.management import CommandError
from django.db import connection

from example_project.database import VAR
from example_project.processes import spawn

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
LOG = VAR / "demo-workers.log"
STOPS_WITHIN = 30.0
# A SQLite file has one runworkers at a time. That of a demo that was killed is stopping for as long as its grace.
REFUSED, PATIENCE = 2, 15.0


class Workers:
    """Use as a context: at its end they are told to stop, and waited for."""

    def __init__(self, processes: int = 2, threads: int = 4) -> None:
        self._options = ["--processes", str(processes), "--threads", str(threads)]
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        LOG.write_bytes(b"")
        self._patient_until = time.monotonic() + PATIENCE
        self._start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _start(self) -> None:
        with LOG.open("ab") as log:
            self._process = spawn(
                [sys.executable, str(MANAGE), "runworkers", "--no-reload", *self._options],
                at_our_end=signal.SIGTERM,
                stdout=log,
            )

    def wait(self, seconds: float | None) -> None:
        """Wait so long. Raises CommandError at once when the workers end by themselves."""
        try:
            code = self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return
        if code == REFUSED and connection.vendor == "sqlite" and time.monotonic() < self._patient_until:
            self._start()
            return
        tail = "\n  ".join(LOG.read_text(errors="replace").splitlines()[-15:])
        raise CommandError(f"The workers ended by themselves, exit code {code}. The end of {LOG}:\n  {tail}")

    def stop(self) -> int:
        """Let them finish what runs, and return their exit code: 0 when nothing was cut."""
        self._process.terminate()
        try:
            return self._process.wait(timeout=STOPS_WITHIN)
        except KeyboardInterrupt:
            self._process.terminate()  # the second signal: they do not wait for what runs
            self._process.wait(timeout=STOPS_WITHIN)
            raise
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
