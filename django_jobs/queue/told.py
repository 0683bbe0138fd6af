"""Telling the project's receivers of signals what became of jobs. While nobody listens it is one look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import transaction

from django_jobs import log, registry, signals
from django_jobs.engines.values import Claimed, NewJob, Terms
from django_jobs.models import Job
from django_jobs.receivers.guard import Guard, send

Stored = tuple[int, Terms]
_ENDS = (signals.job_finished, signals.job_retrying, signals.job_dead)


class End(NamedTuple):
    """The end of a run, as it was stored. `status` is the job's; `cause` and `error` are those of its history."""

    job_id: int
    job_type: str
    queue: str
    attempt: int
    run: int
    status: str
    cause: str
    error: str
    seconds: float


def enqueues_are_heard() -> bool:
    return bool(signals.job_enqueued.receivers)


def ends_are_heard() -> bool:
    return any(signal.receivers for signal in _ENDS)


def enqueued(alias: str, jobs: Iterable[Stored]) -> None:
    """Tell of jobs that were stored; the caller's transaction, if there is one, stays usable whatever receivers do in it."""
    with Guard("A receiver of job_enqueued") as guard:
        for job_id, terms in jobs:
            said = {"job_id": job_id, "job_type": terms.type, "queue": terms.queue, "using": alias}
            guard.send(signals.job_enqueued, sender=registry.find(terms.type), **said)


def fired(alias: str, made: Sequence[tuple[int | None, NewJob]]) -> None:
    """Tell, when the transaction has committed, of the jobs that schedules have made in it."""
    new = [(pk, job.terms) for pk, job in made if pk is not None]
    if new and (signals.schedule_fired.receivers or enqueues_are_heard()):
        when_committed(alias, partial(_tell_fired, alias, new))


def _tell_fired(alias: str, jobs: Sequence[Stored]) -> None:
    for job_id, terms in jobs:
        enqueued(alias, [(job_id, terms)])
        said = {"job_id": job_id, "queue": terms.queue, "schedule": terms.schedule, "slot": terms.slot}
        _send("schedule_fired", terms.type, said)


def started(claimed: Claimed) -> None:
    said = {"job_id": claimed.id, "queue": claimed.queue, "attempt": claimed.attempts + 1, "run": claimed.token}
    _send_from_ours("job_started", claimed.type, said)


def ended(end: End) -> None:
    said = end._asdict()
    job_type = said.pop("job_type")
    _send_from_ours("job_retrying" if end.status == Job.Status.READY else "job_finished", job_type, said)
    if end.status in Job.DEAD_LETTERS:
        _send_from_ours("job_dead", job_type, said)


def when_committed(alias: str, tell: Callable[[], None]) -> None:
    transaction.on_commit(lambda: post(tell), using=alias, robust=True)


def post(tell: Callable[[], None]) -> None:
    """Tell something now or, in a process whose threads have no time for receivers, by the way that it has given."""
    _way(tell)


def post_by(way: Callable[[Callable[[], None]], None]) -> None:
    global _way
    _way = way


def at_once(tell: Callable[[], None]) -> None:
    """The way of a process that has given no other."""
    tell()


_way = at_once


def _send(name: str, job_type: str, said: dict[str, Any]) -> None:
    send(getattr(signals, name), name, sender=registry.find(job_type), job_type=job_type, **said)


def _send_from_ours(name: str, job_type: str, said: dict[str, Any]) -> None:
    """Send a signal on a thread of ours, which also what is no Exception must not end."""
    try:
        _send(name, job_type, said)
    except BaseException:
        log.loop_failed(f"A receiver of {name}")
