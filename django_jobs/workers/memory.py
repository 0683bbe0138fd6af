"""How much memory one run may take; see also `limits`, for whole processes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limited(allowed: int | None) -> Iterator[None]:
    """Let this process allocate no more than so many bytes over what it has; Python then raises MemoryError (Linux).

    What its threads have as stacks, and what it maps for writing, counts as well.
    """
    used = None if allowed is None else _data_size()
    if allowed is None or used is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + allowed
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def too_little(allowed: int) -> str:
    return f"Ran alone, and wanted more memory than SOLO_MEMORY allows ({allowed / 2**20:,.0f} MiB)."


def _data_size() -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            size = next(line for line in status if line.startswith("VmData:"))
        return int(size.split()[1]) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None  # not Linux
