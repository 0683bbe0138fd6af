"""When something of our own breaks, the process ends and is replaced: a half-working one would keep its jobs for ever."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from django_jobs import log
from django_jobs.workers.seats import Phase, Region

EXIT_CODE = 70


def end_process(region: Region, error: BaseException) -> None:
    """End this worker process at once; its supervisor gives back what is in its seats, charged as a loss."""
    log.process_failed(os.getpid(), error)
    region.set_phase(Phase.FAILED)
    os._exit(EXIT_CODE)


def can_open_files() -> bool:
    try:
        for descriptor in os.pipe():
            os.close(descriptor)
    except OSError as error:
        return error.errno != errno.EMFILE
    return True


@contextmanager
def end_process_on_error(region: Region) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        end_process(region, error)
