"""Why a job is where it is, in a sentence. All ages are by the database's clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.models import Job, Worker

AHEAD_LIMIT = 1000


def explain(job: Job) -> str:
    """Say in a sentence why a job is not running, or how it ended."""
    alias = job._state.db or jobs_alias()
    found = Job.objects.using(alias).filter(pk=job.pk).annotate(clock=Now()).first()
    if found is None:
        return f"Job {job.pk} is gone: it was deleted."
    now: datetime = found.clock
    live = list(live_workers(alias))
    match found.status:
        case Job.Status.READY:
            return _ready(found, now, live, alias)
        case Job.Status.RUNNING:
            return _running(found, now, alias)
        case Job.Status.DONE:
            return f"Done {_age(found.finished_at, now)} ago{_took(found)}."
        case _:
            return f"{_ended(found)} {_age(found.finished_at, now)} ago: {_why(found)}"


def live_workers(alias: str) -> Any:
    """Return the workers whose heartbeat is younger than a lease."""
    return Worker.objects.using(alias).filter(heartbeat_at__gt=Now() - timedelta(seconds=conf().lease))


def _ready(job: Job, now: datetime, live: list[Worker], alias: str) -> str:
    if job.run_at > now:
        return f"{_waits_for(job)} is due in {span(job.run_at - now)}{_after_what(job)}."
    due = f"Due for {_age(job.run_at, now)}"
    if not live:
        return f"{due}, but no worker is running: start `manage.py runworkers`."
    serving = [worker for worker in live if worker.queues is None or job.queue in worker.queues]
    if not serving:
        return f"{due}, but none of the {len(live)} live workers serves the queue {job.queue!r}."
    knowing = [worker for worker in serving if job.type in worker.types]
    if not knowing:
        return f"{due}, but no live worker that serves the queue {job.queue!r} knows the type {job.type!r}."
    if job.parked == Job.Parked.TYPE:
        by_whom = f"a worker without the type {job.type!r} parked it"
        return f"{due}; {by_whom}, and one of the {len(knowing)} that know it takes it next."
    return (
        f"{due}{_after_what(job)}; {_ahead(job, alias)} before it in its queue, {len(knowing)} live workers serve it."
    )


def _waits_for(job: Job) -> str:
    if job.attempts:
        return f"Attempt {job.attempts + 1} of {job.max_attempts}"
    return "The next run" if job.token else "The first run"


def _after_what(job: Job) -> str:
    last = job.history[-1] if job.history else None
    if not last:
        return ""
    streak = 0
    for line in reversed(job.history):
        if line["cause"] != last["cause"]:
            break
        streak += 1
    times = "" if streak == 1 else f", {streak} times in a row"
    return f"; the last run ended as {last['cause']!r}{times}: {last['error']}".rstrip(".")


def _ahead(job: Job, alias: str) -> str:
    earlier = Q(priority__gt=job.priority) | Q(priority=job.priority, run_at__lt=job.run_at)
    ahead = Job.objects.using(alias).due().filter(earlier, queue=job.queue)[:AHEAD_LIMIT].count()
    return f"{ahead if ahead < AHEAD_LIMIT else f'{AHEAD_LIMIT} or more'} due jobs are"


def _running(job: Job, now: datetime, alias: str) -> str:
    assert job.locked_by is not None
    assert job.locked_until is not None
    worker = Worker.objects.using(alias).filter(pk=job.locked_by.partition(":")[0]).first()
    where = f"on {worker}" if worker else "in a worker process that is gone or has not said it is there"
    sentence = f"Runs for {_age(job.last_started_at, now)} {where} (run {job.token})"
    if job.locked_until < now:
        return f"{sentence}; its lease ran out {_age(job.locked_until, now)} ago, and it goes back at the next sweep."
    if worker and now - worker.heartbeat_at > timedelta(seconds=2 * conf().heartbeat):
        silent = _age(worker.heartbeat_at, now)
        return (
            f"{sentence}; the worker is silent for {silent}, and the job goes back in {span(job.locked_until - now)}."
        )
    return f"{sentence}, leased for another {span(job.locked_until - now)}{_after_what(job)}."


def _ended(job: Job) -> str:
    if job.status == Job.Status.DEAD:
        return f"Dead after {job.attempts} of {job.max_attempts} attempts and {job.losses} losses in a row,"
    return "Failed for good" if job.status == Job.Status.FAILED else "Cancelled"


def _took(job: Job) -> str:
    if job.finished_at is None or job.last_started_at is None:
        return ""
    runs = "" if job.token == 1 else f", in run {job.token}"
    return f", {span(job.finished_at - job.last_started_at)} after its start{runs}"


def _why(job: Job) -> str:
    last = job.history[-1] if job.history else None
    if last and last["run"] == job.token:
        return str(last["error"]) or "no reason given"
    return job.last_error.strip() or "no reason given"


def _age(since: datetime | None, now: datetime) -> str:
    return "some time" if since is None else span(now - since)


def span(length: timedelta) -> str:
    """Return a duration in its one or two largest units."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:.0f} days"
