"""What the commands say about jobs, as data: plain values that become JSON or lines of text."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, DateTimeField, F, Min, Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from django_jobs import redact
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.depths import QueueDepth, depths
from django_jobs.engines.parked import parked
from django_jobs.exceptions import JobDoesNotExist
from django_jobs.models import ArchivedJob, Effect, Job, Pause, Schedule, Stat, Worker, find
from django_jobs.models.clock import Clock, database_now, for_row
from django_jobs.queue.operate import FINISHED
from django_jobs.queue.sought import Sought
from django_jobs.schedules.status import OVERDUE

UNSUCCESSFUL = (Job.Status.FAILED, Job.Status.DEAD, Job.Status.CANCELLED)
# Finished rows may be millions: beyond this they are not counted but said to be more.
COUNT_LIMIT = 100_000
# Nor is what waits or runs, of each lane; what is parked of each type and queue.
DEPTH_LIMIT = 10_000
# Over which what ended a minute is told.
RATE_MINUTES = timedelta(minutes=5)
# Effects of a job that are named; the others are counted.
MOST_NAMED = 5
# Within which the database must let us in and try a write.
TRIAL_SECONDS = 5.0


def status() -> dict[str, Any]:
    """Return the state of the whole queue: queues with their waiting jobs, finished counts, workers."""
    alias = jobs_alias()
    return {
        "database": f"{engine(alias).describe()} ({alias})",
        "cannot_be_written": engine(alias).why_not_writable(TRIAL_SECONDS),
        "queues": queues(alias),
        "finished": {state.value: _capped(alias, state) for state in FINISHED},
        "count_limit": COUNT_LIMIT,
        "depth_limit": DEPTH_LIMIT,
        "workers": workers(alias),
        "pauses": pauses(),
        "unknown_types": unknown_types(alias),
        "schedules": schedule_counts(alias),
        "may_have_happened": may_have_happened(alias),
    }


def schedule_counts(alias: str) -> dict[str, int]:
    """Count schedules by what a person should know of them; of those that are enabled."""
    schedules = Schedule.objects.using(alias)
    on = schedules.filter(enabled=True)
    unseen = Q(state__wake_at=None, state__next_run_at=None)
    late = Q(state__wake_at__lt=Clock() - OVERDUE)
    return {
        "enabled": on.count(),
        "paused": schedules.filter(enabled=False).count(),
        "broken": on.filter(state__error__gt="").count(),
        "overdue": on.filter(Q(state=None) | Q(unseen | late, state__error="")).count(),
    }


def may_have_happened(alias: str) -> dict[str, Any]:
    """Count the effects outside the database of which no answer was seen and that nobody has under way."""
    found = Effect.objects.using(alias).may_have_happened().order_by("-asked_at")[:COUNT_LIMIT]
    oldest = found.aggregate(number=Count("id"), oldest=Min("asked_at"), clock=Min(Now(), output_field=DateTimeField()))
    return {"effects": oldest["number"], "oldest_seconds": _seconds(oldest["oldest"], oldest["clock"])}


def pauses() -> list[dict[str, Any]]:
    """Return the pauses in force, queues first."""
    rows = Pause.objects.using(jobs_alias()).in_force().annotate(clock=Now()).order_by("kind", "name")
    return [
        {
            "kind": row.kind,
            "name": row.name,
            "by": row.by,
            "why": row.why,
            "since": _text(row.created_at),
            "since_seconds": _seconds(row.created_at, row.clock),
            "until": _text(row.until),
            "seconds_left": _seconds(row.clock, row.until),
        }
        for row in rows
    ]


def queues(alias: str) -> list[dict[str, Any]]:
    """Count what waits and runs, each number no further than DEPTH_LIMIT; with what ended a minute lately."""
    rates = _rates(alias)
    retries = _retries(alias)
    found = {found.queue: found for found in depths(engine(alias), DEPTH_LIMIT).queues}
    for name in rates:
        found.setdefault(name, QueueDepth(name))
    return [
        {
            "queue": queue.queue,
            "due": queue.due,
            "oldest_due_seconds": None if queue.oldest is None else round(queue.oldest, 3),
            "later": queue.later,
            "retries": retries.get(queue.queue, 0),
            "parked": queue.parked + queue.suspects,
            "suspects": queue.suspects,
            "running": queue.running,
            "capped": queue.is_capped,
            **rates.get(queue.queue, {"done_a_minute": 0.0, "failed_a_minute": 0.0}),
        }
        for _name, queue in sorted(found.items())
    ]


def _retries(alias: str) -> dict[str, int]:
    """Count by queue what waits for another attempt, no further than DEPTH_LIMIT in all."""
    found = Job.objects.using(alias).retries().filter(parked__isnull=True).order_by().values("queue")[:DEPTH_LIMIT]
    return dict(Counter(row["queue"] for row in found))


def _rates(alias: str) -> dict[str, dict[str, float]]:
    """Return by queue what was done, and what failed for good, a minute in the last whole minutes."""
    until = database_now(alias).replace(second=0, microsecond=0)
    minutes = {"minute__gte": for_row(until - RATE_MINUTES, alias), "minute__lt": for_row(until, alias)}
    rows = Stat.objects.using(alias).filter(**minutes).values("queue").order_by("queue")
    number = RATE_MINUTES / timedelta(minutes=1)
    return {
        row["queue"]: {
            "done_a_minute": round(row["finished"] / number, 1),
            "failed_a_minute": round(row["ended"] / number, 1),
        }
        for row in rows.annotate(finished=Sum("done"), ended=Sum(F("failed") + F("dead")))
    }


def _seconds(since: datetime | None, now: datetime | None) -> float | None:
    return None if since is None or now is None else round((now - since).total_seconds(), 3)


def _capped(alias: str, state: Job.Status) -> int:
    return int(Job.objects.using(alias).filter(status=state).order_by()[:COUNT_LIMIT].count())


def workers(alias: str) -> list[dict[str, Any]]:
    rows: Any = Worker.objects.using(alias).marked().defer("stacks").order_by("host", "pid")
    return [
        {
            "id": worker.pk,
            "host": worker.host,
            "pid": worker.pid,
            "queues": worker.queues,
            "types": len(worker.types),
            "threads": worker.threads,
            "live": worker.live,
            "asked": worker.asked,
            "listens": worker.listens,
            "heartbeat_seconds": _seconds(worker.heartbeat_at, worker.clock),
            "age_seconds": _seconds(worker.started_at, worker.clock),
        }
        for worker in rows
    ]


def unknown_types(alias: str) -> list[dict[str, Any]]:
    """Return the types of which jobs are parked, by no pause in force, and that no live worker of their queue knows."""
    live = list(Worker.objects.using(alias).live())
    paused = Pause.objects.using(alias).names(Pause.Kind.TYPE)
    found = [(row.type, row.queue, row.jobs, row.waiting) for row in parked(engine(alias), DEPTH_LIMIT)]
    # A suspect was known to whoever ran it: that no worker runs at all is said elsewhere.
    if live:
        found += [(row.type, row.queue, row.jobs, row.waiting) for row in parked(engine(alias), DEPTH_LIMIT, True)]
    kinds: dict[tuple[str, str], tuple[int, float]] = {}
    for name, queue, number, waiting in found:
        before = kinds.get((name, queue), (0, waiting))
        kinds[name, queue] = before[0] + number, max(before[1], waiting)
    return [
        {"type": name, "queue": queue, "jobs": number, "waiting_seconds": round(waiting, 3)}
        for (name, queue), (number, waiting) in sorted(kinds.items())
        if name not in paused and not any(name in worker.types and worker.serves(queue) for worker in live)
    ]


def jobs(sought: Sought, *, status: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
    """Return the newest jobs that match, newest first; of those that ended without success, the last ended first."""
    # In the order that an index has: among millions that are done, the few dead ones would be long looked for.
    order = ["-finished_at", "-id"] if status in UNSUCCESSFUL else ["-id"]
    table = Job.objects.using(jobs_alias()).order_by(*order)
    found = sought.rows(table.filter(status=status) if status else table)
    return [_short(job) for job in found[:limit]]


def job(job_id: int) -> Job | ArchivedJob:
    """Return a job by id, also from the archive; raise JobDoesNotExist."""
    found = find(jobs_alias(), job_id)
    if found is None:
        raise JobDoesNotExist(f"There is no job {job_id}.")
    return found


def _short(job: Job | ArchivedJob) -> dict[str, Any]:
    return {
        "id": job.pk,
        "type": job.type,
        "queue": job.queue,
        "priority": job.priority,
        "status": job.status,
        "parked": job.parked,
        "attempt": job.attempt,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "run_at": _text(job.run_at),
        "finished_at": _text(job.finished_at),
        "error": _error(job),
    }


def _error(job: Job | ArchivedJob) -> str | None:
    """Return in a line what the last run that did not succeed, or whoever ended the job, said."""
    if job.status == Job.Status.DONE or not job.history:
        return None
    return redact.text(str(job.history[-1].get("error", "")), redact.secrets(job.type, job.payload)) or None


def story(job: Job | ArchivedJob) -> dict[str, Any]:
    """Return everything the row says of a job, and the sentence of `explain()`; values of names in REDACT are masked."""
    seen = redact.job(job)
    return {
        **_short(job),
        "explanation": job.explain(),
        "args": seen.payload["args"],
        "kwargs": seen.payload["kwargs"],
        "tags": job.tags,
        "schedule": job.schedule,
        "slot": _text(job.slot),
        "idempotency_key": job.idempotency_key,
        "key_holds": job.key_holds,
        "expires_at": _text(job.expires_at),
        "cancel_reason": seen.cancel_reason,
        "timeout": job.timeout,
        "runs": job.token,
        "losses": job.losses,
        "suspect": job.suspect,
        "locked_by": job.locked_by,
        "locked_until": _text(job.locked_until),
        "created_at": _text(job.created_at),
        "started_at": _text(job.started_at),
        "last_started_at": _text(job.last_started_at),
        "archived_at": _text(job.archived_at) if isinstance(job, ArchivedJob) else None,
        "requeued_as": job.requeued_as if isinstance(job, ArchivedJob) else None,
        "progress": seen.progress,
        "result": seen.result,
        "last_error": seen.last_error,
        "history": seen.history,
        "may_have_happened": _left_by(job),
    }


def _left_by(job: Job | ArchivedJob) -> dict[str, Any]:
    found = Effect.objects.using(jobs_alias()).left_by(job)
    return {"effects": found.count(), "newest": list(found.values_list("key", flat=True)[:MOST_NAMED])}


def _text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return (timezone.localtime(moment) if timezone.is_aware(moment) else moment).isoformat(timespec="milliseconds")
