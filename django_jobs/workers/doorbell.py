from __future__ import annotations

import os
import select


class Doorbell:
    """A pipe that wakes a process's loop from another thread or another process; ringing twice is ringing once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            pass  # full: it rings already

    def wait(self, timeout: float) -> bool:
        """Return whether it rang within `timeout` seconds."""
        ready, _, _ = select.select([self._read], [], [], max(timeout, 0.0))
        if ready:
            try:
                os.read(self._read, 4096)
            except BlockingIOError:
                return False
        return bool(ready)

    def fileno(self) -> int:
        return self._read
