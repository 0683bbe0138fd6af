"""Why a job is where it is, in a sentence. All ages are by the database's clock."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Now

from django_jobs import redact
from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.engines.causes import ASKED_TO_STOP, CALLED_OFF, CAME_FROM, EDITED, HISTORY_LIMIT, REQUEUED
from django_jobs.models import ArchivedJob, Job, Pause, Worker, find
from django_jobs.models.clock import ClockText
from django_jobs.models.record import JobRecord
from django_jobs.waiting import unserved


def explain(job: JobRecord) -> str:
    """Say in a sentence why a job is not running, or how it ended."""
    alias = job._state.db or jobs_alias()
    found: Any = find(alias, job.pk, clock=Now(), clock_text=ClockText())
    if found is None:
        return f"Job {job.pk} is gone: it was deleted."
    is_open = found.status in (Job.Status.READY, Job.Status.RUNNING)
    return sentence(found, Around.read(alias) if is_open else Around())


@dataclass(frozen=True, slots=True)
class Around:
    """The pauses in force, queues first, and the workers there are, the silent ones included."""

    pauses: Sequence[Pause] = ()
    workers: Sequence[Worker] = ()

    @classmethod
    def read(cls, alias: str) -> Around:
        in_force = Pause.objects.using(alias).in_force().order_by("kind", "name")
        return cls(list(in_force), list(Worker.objects.using(alias).defer("stacks").order_by("-heartbeat_at")))

    def pauses_of(self, job: JobRecord) -> list[Pause]:
        names = {Pause.Kind.QUEUE: job.queue, Pause.Kind.TYPE: job.type}
        return [row for row in self.pauses if names.get(Pause.Kind(row.kind)) == row.name]

    def holder_of(self, job: Any) -> Worker | None:
        held_by = (job.locked_by or "").partition(":")[0]
        return next((worker for worker in self.workers if worker.pk == held_by), None)

    def live(self, now: datetime) -> list[Worker]:
        return [worker for worker in self.workers if worker.heartbeat_at > now - timedelta(seconds=conf().lease)]


def sentence(row: Any, around: Around) -> str:
    """Say so of a row as it was just read, with the database's `clock` and, as `ClockText` has it, `clock_text`."""
    now: datetime = row.clock
    found = _masked(row)
    if isinstance(found, ArchivedJob):
        again = "" if found.requeued_as is None else f", and requeued as job {found.requeued_as}"
        return f"{_end(found, now).rstrip('.')}; archived {_age(found.archived_at, now)} ago{again}."
    match found.status:
        case Job.Status.READY:
            return _ready(found, now, around)
        case Job.Status.RUNNING:
            return _running(found, now, around.holder_of(found))
    return _end(found, now)


def _masked(row: Any) -> Any:
    """Return a copy whose texts show no secret, never to be saved."""
    found, seen = copy.copy(row), redact.job(row)
    found.history, found.last_error, found.cancel_reason = seen.history, seen.last_error, seen.cancel_reason
    return found


def _end(job: Any, now: datetime) -> str:
    match job.status:
        case Job.Status.DONE:
            return f"Done {_age(job.finished_at, now)} ago{_took(job)}."
        case Job.Status.CANCELLED if job.cancel_reason is not None:
            return f"Cancelled {_age(job.finished_at, now)} ago {_said(job.cancel_reason)}{_meanwhile(job)}."
        case _:
            return f"{_ended(job)} {_age(job.finished_at, now)} ago: {_why(job)}"


def _ready(job: Any, now: datetime, around: Around) -> str:
    paused = [_pause(row, now) for row in around.pauses_of(job)]
    if job.run_at > now:
        held = f"; but {' and '.join(paused)}" if paused else ""
        alone = "; it is to be run alone" if job.suspect else ""
        waits = f"{_waits_for(job)} is due in {span(job.run_at - now)}{_after_what(job)}"
        return f"{waits}{alone}{held}{_expiry(job, now)}."
    due = f"Due for {_age(job.run_at, now)}"
    if job.expires_at is not None and job.expires_at <= now:
        late = _age(job.expires_at, now)
        return f"{due}, but the time by which it had to start passed {late} ago: it is about to be cancelled."
    if paused:
        return f"{due}, but {' and '.join(paused)}{_expiry(job, now)}."
    live = around.live(now)
    held_up = unserved(job, live, _after_what(job)) if live else f", {_nobody(around, now)}"
    return f"{due}{held_up}{_expiry(job, now)}."


def _nobody(around: Around, now: datetime) -> str:
    last = next(iter(around.workers), None)
    silent = "" if last is None else f" ({last} is silent for {_age(last.heartbeat_at, now)})"
    return f"but no worker is running{silent}: start `manage.py runworkers`"


def _pause(row: Pause, now: datetime) -> str:
    by = f" by {row.by}" if row.by else ""
    end = f"for another {span(row.until - now)}" if row.until else "until it is resumed"
    why = f" ({row.why.rstrip('.')})" if row.why else ""
    return f"its {row.kind} {row.name!r} was paused{by} {_age(row.created_at, now)} ago {end}{why}"


def _expiry(job: Job, now: datetime) -> str:
    return f"; it is cancelled unless it starts within {span(job.expires_at - now)}" if job.expires_at else ""


def _waits_for(job: Job) -> str:
    if job.attempts:
        return f"Attempt {job.attempts + 1} of {job.max_attempts}"
    return "The next run" if job.token else "The first run"


def _after_what(job: Any) -> str:
    lines = [line for line in job.history if line["cause"] != EDITED]
    last = lines[-1] if lines else None
    if not last:
        return ""
    if last["cause"] == REQUEUED:
        return f"; requeued {_line_age(job, last)} ago {_said(last['error'])}"
    streak = 0
    for line in reversed(lines):
        if line["cause"] != last["cause"]:
            break
        streak += 1
    times = "" if streak == 1 else f", {_counted(streak, len(job.history))} times in a row"
    return f"; the last run ended as {last['cause']!r}{times}: {last['error']}".rstrip(".")


def _counted(streak: int, lines: int) -> str:
    """Say how long a streak is; between the first and the other lines of a full history some may have been dropped."""
    last = HISTORY_LIMIT - 1
    return f"at least {last}" if lines >= HISTORY_LIMIT and streak >= last else str(streak)


def _said(text: str) -> str:
    """Return who did something, and why, as the end of a sentence."""
    text = text.rstrip(".")
    return text if text.startswith("by ") else f"by a person: {text}"


def _line_age(job: Any, line: dict[str, Any]) -> str:
    """Return how long ago a line of the history was written: both times are the database's, as text in UTC."""
    try:
        return span(datetime.fromisoformat(job.clock_text) - datetime.fromisoformat(line["at"]))
    except (KeyError, TypeError, ValueError):  # a line that was written by hand
        return "some time"


def _running(job: Any, now: datetime, worker: Worker | None) -> str:
    assert job.locked_until is not None
    where = f"on {worker}" if worker else "in a worker process that is gone or has not said it is there"
    alone = "alone, as a suspect, " if job.suspect else ""
    sentence = f"Runs {alone}for {_age(job.last_started_at, now)} {where} (run {job.token}){_asked_to_stop(job)}"
    if job.locked_until < now:
        return f"{sentence}; its lease ran out {_age(job.locked_until, now)} ago, and it goes back at the next sweep."
    if worker and now - worker.heartbeat_at > timedelta(seconds=2 * conf().heartbeat):
        silent = _age(worker.heartbeat_at, now)
        return (
            f"{sentence}; the worker is silent for {silent}, and the job goes back in {span(job.locked_until - now)}."
        )
    return f"{sentence}, leased for another {span(job.locked_until - now)}{_before(job)}."


def _before(job: Any) -> str:
    return "" if job.cancel_reason is not None else _after_what(job)


def _asked_to_stop(job: Any) -> str:
    if job.cancel_reason is None:
        return ""
    asked: dict[str, Any] = next((line for line in reversed(job.history) if line["cause"] == ASKED_TO_STOP), {})
    return (
        f"; it was asked to stop {_line_age(job, asked)} ago {_said(job.cancel_reason)}: its handler is told with a "
        f"heartbeat (every {conf().heartbeat:g} s), and it is cancelled when its run ends"
    )


def _meanwhile(job: Any) -> str:
    """Say how a run ended that was asked to stop."""
    last = job.history[-1] if job.history else None
    if not last or last["run"] != job.token or last["cause"] == CALLED_OFF:
        return ""
    if last["cause"] == ASKED_TO_STOP:
        return "; its run returned or was not begun"
    return f"; its run ended as {last['cause']!r}: {last['error']}".rstrip(".")


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
    if job.status == Job.Status.DEAD and job.suspect and job.last_error:
        return job.last_error.split("\n")[0]  # what ended it, of which the history has one run
    last = job.history[-1] if job.history else None
    if last and last["run"] == job.token:
        return str(last["error"]) or "no reason given"
    # Of a traceback what it says, and of several the last that was raised.
    return job.last_error.partition(CAME_FROM)[0].strip().rpartition("\n")[2] or "no reason given"


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
