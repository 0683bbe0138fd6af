"""Telling the project's receivers of signals what became of jobs. While nobody listens it is one look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.dispatch import Signal

from django_jobs import log, registry, signals
from django_jobs.engines.values import Claimed, NewJob, Terms
from django_jobs.models import Job

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


class _Undone(Exception):
    """A receiver's statement failed, so what receivers did in the caller's transaction is taken back."""


def enqueues_are_heard() -> bool:
    return bool(signals.job_enqueued.receivers)


def ends_are_heard() -> bool:
    return any(signal.receivers for signal in _ENDS)


def enqueued(alias: str, jobs: Iterable[Stored]) -> None:
    """Tell of jobs that were stored; the caller's transaction, if there is one, stays usable whatever receivers do in it."""
    if not connections[alias].in_atomic_block:
        _tell_enqueued(alias, jobs)
        return
    try:
        with suppress(_Undone), transaction.atomic(using=alias):
            if any(isinstance(error, DatabaseError) for error in _tell_enqueued(alias, jobs)):
                raise _Undone
    except DatabaseError:  # one that a receiver has caught, and that has broken the savepoint
        log.loop_failed("A receiver of job_enqueued")


def _tell_enqueued(alias: str, jobs: Iterable[Stored]) -> list[Exception]:
    return [
        error
        for job_id, terms in jobs
        for error in _send(signals.job_enqueued, terms.type, job_id=job_id, queue=terms.queue, using=alias)
    ]


def fired(alias: str, made: Sequence[tuple[int | None, NewJob]]) -> None:
    """Tell, when the transaction has committed, of the jobs that schedules have made in it."""
    new = [(pk, job.terms) for pk, job in made if pk is not None]
    if new and (signals.schedule_fired.receivers or enqueues_are_heard()):
        when_committed(alias, partial(_tell_fired, alias, new))


def _tell_fired(alias: str, jobs: Sequence[Stored]) -> None:
    for job_id, terms in jobs:
        enqueued(alias, [(job_id, terms)])
        said = {"job_id": job_id, "queue": terms.queue, "schedule": terms.schedule, "slot": terms.slot}
        _send(signals.schedule_fired, terms.type, **said)


def started(claimed: Claimed) -> None:
    said = {"job_id": claimed.id, "queue": claimed.queue, "attempt": claimed.attempts + 1, "run": claimed.token}
    _send_guarded(signals.job_started, claimed.type, said)


def ended(end: End) -> None:
    said = end._asdict()
    job_type = said.pop("job_type")
    signal = signals.job_retrying if end.status == Job.Status.READY else signals.job_finished
    _send_guarded(signal, job_type, said)
    if end.status in Job.DEAD_LETTERS:
        _send_guarded(signals.job_dead, job_type, said)


def when_committed(alias: str, tell: Callable[[], None]) -> None:
    transaction.on_commit(lambda: post(tell), using=alias, robust=True)


def post(tell: Callable[[], None]) -> None:
    """Tell something now or, in a process whose threads have no time for receivers, by the way that it has given."""
    _way(tell)


def post_by(way: Callable[[Callable[[], None]], None]) -> None:
    global _way
    _way = way


def _at_once(tell: Callable[[], None]) -> None:
    tell()


_way = _at_once


def _send(signal: Signal, job_type: str, **said: Any) -> list[Exception]:
    """Send a signal; return what receivers have raised, which Django has logged."""
    answers = signal.send_robust(sender=registry.find(job_type), job_type=job_type, **said)
    return [answer for _, answer in answers if isinstance(answer, Exception)]


def _send_guarded(signal: Signal, job_type: str, said: dict[str, Any]) -> None:
    """Send a signal on a thread of ours, which also what is no Exception must not end."""
    try:
        _send(signal, job_type, **said)
    except BaseException:
        log.loop_failed("A receiver of a signal")
