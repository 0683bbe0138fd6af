from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.payload import storable

NOTE_LIMIT = 1000
LARGEST_NUMBER = 1e300


class Described(Protocol):
    """What is known of the job besides."""

    @property
    def type(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def arguments(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a running handler may know of its run and say about it.

    `attempt` is 1 for the first attempt and grows only by attempts that failed; `run` grows at every run.
    `idempotency_key` is the job's own key, or `job:<id>`, and is the same in every run: give it to other systems.
    `slot` is the planned instant (aware, UTC) of a scheduled job, else None. `job_type` is the type's name.
    """

    job_id: int
    attempt: int
    run: int
    idempotency_key: str
    slot: datetime | None
    stop_asked: Callable[[], bool]
    report: Callable[[dict[str, Any]], None]
    # One field for what few ask for: making these is part of every run.
    job: Described | None = None

    @property
    def should_stop(self) -> bool:
        """True when this run should end soon: its deadline passed, its lease is lost, or the worker stops."""
        return self.stop_asked()

    @property
    def job_type(self) -> str:
        return "" if self.job is None else self.job.type

    @property
    def queue(self) -> str:
        return "" if self.job is None else self.job.queue

    @property
    def arguments(self) -> dict[str, Any]:
        """What the job was enqueued with, by the names of the function's parameters, without their defaults."""
        return {} if self.job is None else self.job.arguments

    def progress(self, done: float, total: float, note: str = "") -> None:
        """Show how far this run is: `done` of `total`, and a note of at most 1,000 characters.

        Cheap enough to call often: values are kept in memory and the latest is written about twice a second.
        Raises InvalidJob or InvalidJobType when the numbers make no sense.
        """
        for name, value in (("done", done), ("total", total)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidJobType(f"progress({name}={shown(value)}): give a number.")
            if not abs(value) <= LARGEST_NUMBER:  # also true of NaN
                raise InvalidJob(f"progress({name}={shown(value)}): give a finite number.")
        if total <= 0 or not 0 <= done <= total:
            raise InvalidJob(
                f"progress(done={done!r}, total={total!r}): total must be over 0 and done from 0 to total."
            )
        if not isinstance(note, str):
            raise InvalidJobType(f"progress(note={shown(note)}): give text.")
        if len(note) > NOTE_LIMIT:
            raise InvalidJob(f"progress: the note has {len(note)} characters; at most {NOTE_LIMIT} are allowed.")
        self.report({"done": done, "total": total, "note": storable(note)})


# Of the job that this thread, or this task, is running.
current: ContextVar[Context | None] = ContextVar("django_jobs", default=None)
