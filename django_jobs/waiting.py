"""What a job that is due waits for: a worker that serves it, a free thread, and the jobs before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, Value
from django.db.models.functions import Left, StrIndex

from django_jobs.engines.causes import LOSSES
from django_jobs.models import Job, Worker
from django_jobs.models.clock import Clock
from django_jobs.texts import ngettext, number
from django_jobs.texts import text as _

AHEAD_LIMIT = 1000
RUNNING_LIMIT = 10_000


def unserved(job: Any, live: Sequence[Worker], before: str) -> str:
    """Return what holds up a due job, as the end of a sentence; `before` is how it came to wait again."""
    serving = [worker for worker in live if worker.serves(job.queue)]
    if not serving:
        return ngettext(
            ", but the one live worker does not serve the queue %(queue)r",
            ", but none of the %(number)d live workers serves the queue %(queue)r",
            len(live), number=len(live), queue=job.queue,
        )  # fmt: skip
    knowing = [worker for worker in serving if job.type in worker.types]
    if not knowing:
        words = {"queue": job.queue, "type": job.type}
        return _(", but no live worker that serves the queue %(queue)r knows the type %(type)r", **words)
    claiming = [worker for worker in knowing if worker.claims]
    if not claiming:
        return ngettext(
            ", but the live worker that serves it was asked to claim nothing more: resume one, or start another",
            ", but all %(number)d live workers that serve it were asked to claim nothing more: resume one, or start another",
            len(knowing), number=len(knowing),
        )  # fmt: skip
    match job.parked:
        case Job.Parked.TYPE:
            return ngettext(
                "; a worker without the type %(type)r parked it, and the one that knows it takes it next",
                "; a worker without the type %(type)r parked it, and one of the %(number)d that know it takes it next",
                len(claiming), type=job.type, number=len(claiming),
            )  # fmt: skip
        case Job.Parked.PAUSE:
            return ngettext(
                "; it was parked by a pause that is over, and the one worker that knows its type takes it next",
                "; it was parked by a pause that is over, and one of the %(number)d that know its type takes it next",
                len(claiming), number=len(claiming),
            )  # fmt: skip
        case Job.Parked.SUSPECT:
            words = {"why": _suspicion(job), "ahead": _suspects_ahead(job), "running": _suspects_running(job)}
            return _("; it is to be run alone, since %(why)s; %(ahead)s before it%(running)s", **words)
    if busy := _busy(job, claiming):
        words = {"before": before, "busy": busy, "ahead": _ahead(job)}
        return _("%(before)s; %(busy)s, and %(ahead)s before it in its queue", **words)
    serve = ngettext("1 live worker serves it", "%(number)d live workers serve it", len(claiming), number=len(claiming))
    return _("%(before)s; %(ahead)s before it in its queue, %(serve)s", before=before, ahead=_ahead(job), serve=serve)


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
    if threads == 1:
        return _("the one thread of the live worker that serves it is busy")
    return ngettext(
        "all %(threads)d threads of the live worker that serves it are busy",
        "all %(threads)d threads of the %(number)d live workers that serve it are busy",
        len(claiming), threads=threads, number=len(claiming),
    )  # fmt: skip


def _ahead(job: Job) -> str:
    earlier = Q(priority__gt=job.priority) | Q(priority=job.priority, run_at__lt=job.run_at)
    ahead = Job.objects.using(job._state.db).due().filter(earlier, queue=job.queue)[:AHEAD_LIMIT].count()
    return ngettext("1 due job is", "%(number)s due jobs are", ahead, number=_counted(ahead))


def _counted(found: int) -> str:
    return number(found) if found < AHEAD_LIMIT else _("%s or more", number(AHEAD_LIMIT))


def _suspicion(job: Job) -> str:
    """Say what made a job a suspect."""
    lost: dict[str, Any] = next((line for line in reversed(job.history) if line["cause"] in LOSSES), {})
    if not lost:
        return _("it may have killed its process")
    return _(
        "it may have killed its process%(times)s (run %(run)s ended as %(cause)r: %(error)s)",
        times="" if job.losses < 2 else _(", lost %d times in a row", job.losses),
        run=lost["run"],
        cause=lost["cause"],
        error=str(lost["error"]).rstrip("."),
    )


def _suspects_ahead(job: Job) -> str:
    as_often = Q(run_at__lt=job.run_at) | Q(run_at=job.run_at, pk__lt=job.pk)
    earlier = Q(losses__lt=job.losses) | Q(as_often, losses=job.losses)
    suspects = Job.objects.using(job._state.db).filter(parked=Job.Parked.SUSPECT, run_at__lte=Clock())
    waiting = suspects.filter(earlier)[:AHEAD_LIMIT].count()
    return ngettext("1 suspect is", "%(number)s suspects are", waiting, number=_counted(waiting))


def _suspects_running(job: Job) -> str:
    runs = Job.objects.using(job._state.db).running().filter(suspect=True)[:AHEAD_LIMIT].count()
    if not runs:
        return ""
    return ngettext(", and 1 runs alone now", ", and %(number)s run alone now", runs, number=_counted(runs))
