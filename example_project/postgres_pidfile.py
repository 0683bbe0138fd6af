"""What a running PostgreSQL wrote about itself into the `postmaster.pid` of its data directory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    pid: int
    directory: str
    port: int
    ready: bool

    @classmethod
    def of(cls, data: Path) -> Self | None:
        """Return what the file says, None without one or while it is being written."""
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            ready = len(lines) > 7 and lines[7].strip() == "ready"
            return cls(pid=int(lines[0]), directory=lines[1], port=int(lines[3]), ready=ready)
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def lives(self) -> bool:
        """Whether that process runs, and not another one that has its number by now."""
        return self.directory in _command_line(self.pid)

    def number_is_taken(self) -> bool:
        """Whether another process has the number, which PostgreSQL would take for a living server."""
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return not self.lives()


def _command_line(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    # macOS
    return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
