"""Disks that are small enough to be filled."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from example_project.postgres_host import Account, account_for, temporary_parent


class Disk:
    """A file system of its own in memory, which a test can fill to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room; at the end there is room again."""
        ballast = self.path / "ballast"
        self.fill()
        try:
            yield
        finally:
            ballast.unlink()

    def fill(self) -> None:
        """Take what room there is, also what was freed since."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise


@contextmanager
def small_disk(mebibytes: int) -> Iterator[Disk]:
    """Mount a small disk that the servers of the tests can use; skip the test where that is not allowed."""
    account = account_for(Path("/nonexistent")) if os.geteuid() == 0 else Account()
    base = Path(tempfile.mkdtemp(prefix="django_jobs-disk-", dir=temporary_parent(account)))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0755", "tmpfs", str(base)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        base.rmdir()
        message = f"no tmpfs can be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("REQUIRE_TMPFS"):
            pytest.fail(message)
        pytest.skip(message)
    try:
        account.own(base)
        yield Disk(base)
    finally:
        # Lazily: what a server that was killed still has open goes with it.
        subprocess.run(["umount", "--lazy", str(base)], check=False)
        base.rmdir()
