"""What a job that is due waits for: a worker that serves it, a free thread, and the jobs before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, Value
from django.db.models.functions import Left, StrIndex

from django_jobs.engines.causes import LOSSES
from django_jobs.models import Job, Worker
from django_jobs.models.clock import Clock

AHEAD_LIMIT = 1000
RUNNING_LIMIT = 10_000


def unserved(job: Any, live: Sequence[Worker], before: str) -> str:
    """Return what holds up a due job, as the end of a sentence; `before` is how it came to wait again."""
    serving = [worker for worker in live if worker.serves(job.queue)]
    if not serving:
        return f", but none of the {len(live)} live workers serves the queue {job.queue!r}"
    knowing = [worker for worker in serving if job.type in worker.types]
    if not knowing:
        return f", but no live worker that serves the queue {job.queue!r} knows the type {job.type!r}"
    claiming = [worker for worker in knowing if worker.claims]
    if not claiming:
        return (
            f", but {_workers(len(knowing), 'was', 'were')} asked to claim nothing more: resume one, or start another"
        )
    next_ = f"and one of the {len(claiming)} that know {{}} takes it next"
    match job.parked:
        case Job.Parked.TYPE:
            return f"; a worker without the type {job.type!r} parked it, {next_.format('it')}"
        case Job.Parked.PAUSE:
            return f"; it was parked by a pause that is over, {next_.format('its type')}"
        case Job.Parked.SUSPECT:
            return f"; it is to be run alone, since {_suspicion(job)}; {_suspects_ahead(job)} before it"
    if busy := _busy(job, claiming):
        return f"{before}; {busy}, and {_ahead(job)} before it in its queue"
    return f"{before}; {_ahead(job)} before it in its queue, {len(claiming)} live workers serve it"


def _workers(number: int, one: str, more: str) -> str:
    if number == 1:
        return f"the live worker that serves it {one}"
    return f"all {number} live workers that serve it {more}"


def _busy(job: Job, claiming: Sequence[Worker]) -> str:
    """Say that no thread is free, if so many jobs run as these workers have threads."""
    threads = sum(worker.threads for worker in claiming)
    holders = [worker.pk for worker in claiming]
    runs = (
        Job.objects.using(job._state.db)
        .running()
        .annotate(holder=Left("locked_by", StrIndex("locked_by", Value(":")) - 1))
    )
    if runs.filter(holder__in=holders).order_by()[:RUNNING_LIMIT].count() < min(threads, RUNNING_LIMIT):
        return ""
    are = "the one thread" if threads == 1 else f"all {threads} threads"
    of = "the live worker that serves it" if len(claiming) == 1 else f"the {len(claiming)} live workers that serve it"
    return f"{are} of {of} {'is' if threads == 1 else 'are'} busy"


def _ahead(job: Job) -> str:
    earlier = Q(priority__gt=job.priority) | Q(priority=job.priority, run_at__lt=job.run_at)
    ahead = Job.objects.using(job._state.db).due().filter(earlier, queue=job.queue)[:AHEAD_LIMIT].count()
    return f"{ahead if ahead < AHEAD_LIMIT else f'{AHEAD_LIMIT} or more'} due jobs are"


def _suspicion(job: Job) -> str:
    """Say what made a job a suspect."""
    lost: dict[str, Any] = next((line for line in reversed(job.history) if line["cause"] in LOSSES), {})
    if not lost:
        return "it may have killed its process"
    times = "" if job.losses < 2 else f", lost {job.losses} times in a row"
    how = f"run {lost['run']} ended as {lost['cause']!r}: {lost['error']}".rstrip(".")
    return f"it may have killed its process{times} ({how})"


def _suspects_ahead(job: Job) -> str:
    as_often = Q(run_at__lt=job.run_at) | Q(run_at=job.run_at, pk__lt=job.pk)
    earlier = Q(losses__lt=job.losses) | Q(as_often, losses=job.losses)
    suspects = Job.objects.using(job._state.db).filter(parked=Job.Parked.SUSPECT, run_at__lte=Clock())
    waiting = suspects.filter(earlier)[:AHEAD_LIMIT].count()
    return (
        "1 suspect is"
        if waiting == 1
        else f"{waiting if waiting < AHEAD_LIMIT else f'{AHEAD_LIMIT} or more'} suspects are"
    )
