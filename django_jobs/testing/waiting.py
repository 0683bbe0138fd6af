"""What was enqueued and waits to be run, for tests to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_jobs import checked
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models import Job
from django_jobs.models.clock import database_now, from_row
from django_jobs.registry import JobType
from django_jobs.tasks.values import META, plain
from django_jobs.testing.given import Type, type_of
from django_jobs.testing.guard import refuse_outside_of_tests

# Between a test's reading of a clock and the statement that stored the job.
NEARLY = timedelta(seconds=5)
MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    job_type: JobType | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    # By the names of parameters; None for any.
    arguments: dict[str, Any] | None
    key: str | None
    queue: str | None
    run_at: datetime | None
    delay: timedelta | None

    def __str__(self) -> str:
        said = [self.job_type.name if self.job_type else "of any type"]
        if self.arguments is not None:
            said[0] += _call(self.args, self.kwargs)
        given = {"key": self.key, "queue": self.queue, "due at": self.run_at, "delay": self.delay}
        return ", ".join([*said, *(f"{name} {value}" for name, value in given.items() if value is not None)])

    def fits(self, job: Job, now: datetime) -> bool:
        return (
            (self.job_type is None or job.type == self.job_type.name)
            and self._has_arguments(job)
            and self.key in (None, job.idempotency_key)
            and self.queue in (None, job.queue)
            and (self.run_at is None or abs(_due(job) - self.run_at) <= NEARLY)
            and (self.delay is None or abs(_due(job) - now - self.delay) <= NEARLY)
        )

    def _has_arguments(self, job: Job) -> bool:
        if self.job_type is None or self.arguments is None:
            return True
        try:
            return self.arguments == _bound(self.job_type, job.args, job.kwargs)
        except TypeError:  # stored by hand, or before the function was changed
            return False


def enqueued(
    job: Type | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    key: str | None = None,
    queue: str | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
) -> list[Job]:
    """Return the jobs that wait to be run, also again, in the order in which they were enqueued.

    `job`: a job function, a task, or the name of a type. With `args` or `kwargs` all arguments have to be these, by whatever way
    they are given to the function; `mock.ANY` is equal to any. `run_at` and `delay`, which counts from now, may be five
    seconds off.
    """
    wanted = _wanted(job, args, kwargs, key, queue, run_at, delay)
    alias = jobs_alias()
    refuse_outside_of_tests(alias, "enqueued()")
    now = database_now(alias)
    return [found for found in Job.objects.using(alias).ready().order_by("pk") if wanted.fits(found, now)]


def assert_enqueued(
    job: Type | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    key: str | None = None,
    queue: str | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    times: int | None = None,
) -> list[Job]:
    """Return what `enqueued` does; raise AssertionError, with what waits instead, unless that is at least one job.

    `times`: exactly so many; 0 for none.
    """
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 0):
        raise InvalidJob(
            f"assert_enqueued(times={shown(times)}): give a whole number from 0 on, or None for at least 1."
        )
    found = enqueued(job, args=args, kwargs=kwargs, key=key, queue=queue, run_at=run_at, delay=delay)
    if len(found) == times or (times is None and found):
        return found
    wanted = _wanted(job, args, kwargs, key, queue, run_at, delay)
    number = "at least 1" if times is None else times
    raise AssertionError(f"Waiting jobs {wanted}: {number} expected, and {len(found)} found. {_all_that_wait()}")


def _wanted(job: Any, args: Any, kwargs: Any, key: Any, queue: Any, run_at: Any, delay: Any) -> _Wanted:
    job_type = None if job is None else type_of(job, "enqueued()")
    if (args is not None or kwargs is not None) and job_type is None:
        raise InvalidJob("Arguments were given without a job; say of which type: enqueued(send_receipt, args=[42]).")
    if isinstance(args, str) or not isinstance(args, Sequence | None):
        raise InvalidJobType(f"args is {shown(args)}; give a list.")
    if not isinstance(kwargs, Mapping | None):
        raise InvalidJobType(f"kwargs is {shown(kwargs)}; give a dict.")
    if delay is not None and not isinstance(delay, timedelta):
        raise InvalidJobType(f"delay is {shown(delay)}; give a timedelta.")
    if run_at is not None and delay is not None:
        raise InvalidJob("Both run_at and delay were given; give one.")
    return _Wanted(
        job_type=job_type,
        args=args or (),
        kwargs=kwargs or {},
        arguments=None if job_type is None or args is kwargs is None else _asked(job_type, args or (), kwargs or {}),
        key=key,
        queue=queue,
        run_at=None if run_at is None else checked.run_at(run_at),
        delay=delay,
    )


def _due(job: Job) -> datetime:
    return from_row(job.run_at, jobs_alias())


def _asked(job_type: JobType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if META in job_type.meta:  # a task's are stored as the framework makes them JSON
            args, kwargs = plain(args), plain(kwargs)
        return _bound(job_type, args, kwargs)
    except TypeError as error:
        call = f"{job_type.name}{_call(args, kwargs)}"
        raise InvalidJobType(f"{call} cannot have been enqueued: {error}.") from None


def _bound(job_type: JobType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    context = [None] if job_type.takes_context else []
    bound = job_type.signature.bind(*context, *args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def _all_that_wait() -> str:
    alias = jobs_alias()
    now = database_now(alias)
    found = list(Job.objects.using(alias).ready().order_by("pk"))
    if not found:
        return "No job waits."
    lines = [f"  {_line(job, now)}" for job in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"  and {len(found) - MOST_SHOWN} more")
    return "\n".join(["These wait:", *lines])


def _line(job: Job, now: datetime) -> str:
    due = (_due(job) - now).total_seconds()
    said = [f"{job.type}{_call(job.args, job.kwargs)}", f"queue {job.queue}"]
    if job.idempotency_key is not None:
        said.append(f"key {job.idempotency_key}")
    return ", ".join([*said, f"due in {due:.0f} s" if due > 0 else "due"])
