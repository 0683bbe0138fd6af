"""What may happen to a run and its worker, at the moments at which it would do most harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from django_jobs.exceptions import InvalidJob, shown
from django_jobs.testing.given import Type, type_of

Kind = Literal["worker lost", "database away", "lease lost"]
Moment = Literal["start", "end"]
MOMENTS = ("start", "end")


class WorkerLost(BaseException):
    """Raise it in a job to have its worker lost there: what is committed stays, and the run is never heard of again.

    As in `mock.patch("shop.jobs.book", side_effect=WorkerLost)`. Unlike a process that dies, it runs `finally` blocks.
    """


class Fault:
    """What the next runs of a type meet."""

    def __init__(self, kind: Kind, job: Type | None, times: int, moment: Moment = "end") -> None:
        self.kind = kind
        self.moment = moment
        self._type = None if job is None else type_of(job, kind).name
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise InvalidJob(f"{kind}: times is {shown(times)}; give a whole number from 1 on.")
        self._left = times

    def meets(self, type_name: str) -> bool:
        return self._left > 0 and self._type in (None, type_name)

    def take(self) -> None:
        self._left -= 1

    def refuse_unmet(self) -> None:
        if self._left > 0:
            what = "job" if self._type is None else self._type
            raise AssertionError(f"The block ended before {self._left} more run(s) of {what} met this: {self.kind}.")


_armed: list[Fault] = []


def take(type_name: str) -> Fault | None:
    """Return what a run of a type meets now."""
    found = next((fault for fault in _armed if fault.meets(type_name)), None)
    if found is not None:
        found.take()
    return found


@contextmanager
def worker_lost(job: Type | None = None, *, at: Moment = "end", times: int = 1) -> Iterator[None]:
    """Have the process die in the next run of a job, of any job without one, or in so many.

    `at="end"`: the function has returned and its end is not stored; `at="start"`: it was not called yet. The run counts as
    a loss, and the job runs again, alone, as after any death that a supervisor sees; a second one in a row is taken for
    its own doing, and it is dead. For a moment in between let what the function calls raise WorkerLost. Raises
    AssertionError when the block ends without these runs.
    """
    if at not in MOMENTS:
        raise InvalidJob(f"worker_lost(at={shown(at)}): give 'start' or 'end'.")
    with _arming(Fault("worker lost", job, times, at)):
        yield


@contextmanager
def database_away(job: Type | None = None, *, times: int = 1) -> Iterator[None]:
    """Have the database be away when the end of the next run of a job is to be stored, for longer than a lease.

    What an atomic job wrote is rolled back, what another one has committed stays; the lease runs out, which counts as a
    loss, and the job runs again. Raises AssertionError when the block ends without these runs.
    """
    with _arming(Fault("database away", job, times)):
        yield


@contextmanager
def lease_lost(job: Type | None = None, *, times: int = 1) -> Iterator[None]:
    """Have the lease of the next run of a job run out while its function runs, as of a worker that was frozen.

    The job is taken back, and the end of that run comes too late and is refused: an atomic job's work is rolled back with
    it. The job runs again. Raises AssertionError when the block ends without these runs.
    """
    with _arming(Fault("lease lost", job, times)):
        yield


@contextmanager
def _arming(fault: Fault) -> Iterator[None]:
    _armed.append(fault)
    try:
        yield
        fault.refuse_unmet()
    finally:
        _armed.remove(fault)
