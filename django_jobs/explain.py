"""Why a job is where it is, in a sentence. All ages are by the database's clock."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from django.db.models.functions import Now

from django_jobs import redact
from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.engines.causes import (
    ASKED_TO_STOP,
    CALLED_OFF,
    CAME_FROM,
    EDITED,
    HISTORY_LIMIT,
    NO_REASON,
    REQUEUED,
    TOO_LATE,
)
from django_jobs.models import ArchivedJob, Job, Pause, Worker, find
from django_jobs.models.clock import ClockText
from django_jobs.models.record import JobRecord
from django_jobs.texts import Text, number, span
from django_jobs.texts import text as _
from django_jobs.waiting import unserved


def explain(job: JobRecord) -> Text:
    """Say in a sentence why a job is not running, or how it ended."""
    alias = job._state.db or jobs_alias()
    found: Any = find(alias, job.pk, clock=Now(), clock_text=ClockText())
    if found is None:
        return _("Job %(id)d is gone: it was deleted.", id=job.pk)
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
        """Return those that hold a job that waits: one that is over when the job is due does not."""
        names = {Pause.Kind.QUEUE: job.queue, Pause.Kind.TYPE: job.type}
        found = [row for row in self.pauses if names.get(Pause.Kind(row.kind)) == row.name]
        return [row for row in found if row.until is None or row.until > job.run_at]

    def holder_of(self, job: Any) -> Worker | None:
        held_by = (job.locked_by or "").partition(":")[0]
        return next((worker for worker in self.workers if worker.pk == held_by), None)

    def live(self, now: datetime) -> list[Worker]:
        return [worker for worker in self.workers if worker.heartbeat_at > now - timedelta(seconds=conf().lease)]


def sentence(row: Any, around: Around) -> Text:
    """Say so of a row as it was just read, with the database's `clock` and, as `ClockText` has it, `clock_text`."""
    now: datetime = row.clock
    found = _masked(row)
    if isinstance(found, ArchivedJob):
        words: dict[str, Any] = {"end": _end(found, now, ""), "age": _age(found.archived_at, now)}
        if found.requeued_as is None:
            return _("%(end)s; archived %(age)s ago.", **words)
        return _("%(end)s; archived %(age)s ago, and requeued as job %(id)d.", **words, id=found.requeued_as)
    match found.status:
        case Job.Status.READY:
            return _ready(found, now, around)
        case Job.Status.RUNNING:
            return _running(found, now, around.holder_of(found))
    return _end(found, now, ".")


def _masked(row: Any) -> Any:
    """Return a copy whose texts show no secret, never to be saved."""
    found, seen = copy.copy(row), redact.job(row)
    found.history, found.last_error, found.cancel_reason = seen.history, seen.last_error, seen.cancel_reason
    return found


def _end(job: Any, now: datetime, stop: str) -> Text:
    """Say how a job ended, up to the stop of the sentence or not."""
    words: dict[str, Any] = {"age": _age(job.finished_at, now), "stop": stop}
    if job.status == Job.Status.DONE:
        return _("Done %(age)s ago%(took)s%(stop)s", **words, took=_took(job))
    if job.status == Job.Status.CANCELLED and job.cancel_reason is not None:
        words |= {"by": _said(job.cancel_reason), "meanwhile": _meanwhile(job)}
        return _("Cancelled %(age)s ago %(by)s%(meanwhile)s%(stop)s", **words)
    why = _why(job)
    words = {"age": words["age"], "why": why if stop else _open(why)}
    if job.status == Job.Status.DEAD:
        words |= {"attempts": job.attempts, "allowed": job.max_attempts}
        if not job.losses:
            return _("Dead after %(attempts)d of %(allowed)d attempts, %(age)s ago: %(why)s", **words)
        return _(
            "Dead after %(attempts)d of %(allowed)d attempts and %(losses)d losses in a row, %(age)s ago: %(why)s",
            **words,
            losses=job.losses,
        )
    if job.status == Job.Status.FAILED:
        return _("Failed for good %(age)s ago: %(why)s", **words)
    return _("Cancelled %(age)s ago: %(why)s", **words)


def _ready(job: Any, now: datetime, around: Around) -> Text:
    pauses = [_pause(row, now) for row in around.pauses_of(job)]
    paused = reduce(lambda first, last: _("%(first)s and %(last)s", first=first, last=last), pauses) if pauses else None
    expiry = _expiry(job, now)
    if job.run_at > now:
        words = {
            "what": _waits_for(job),
            "time": span(job.run_at - now),
            "before": _after_what(job),
            "alone": _("; it is to be run alone") if job.suspect else "",
            "held": _("; but %s", paused) if paused else "",
            "expiry": expiry,
        }
        return _("%(what)s is due in %(time)s%(before)s%(alone)s%(held)s%(expiry)s.", **words)
    age = _age(job.run_at, now)
    if job.expires_at is not None and job.expires_at <= now:
        return _(
            "Due for %(age)s, but the time by which it had to start passed %(late)s ago: it is about to be cancelled.",
            age=age, late=_age(job.expires_at, now),
        )  # fmt: skip
    if paused:
        return _("Due for %(age)s, but %(paused)s%(expiry)s.", age=age, paused=paused, expiry=expiry)
    live = around.live(now)
    held_up = unserved(job, live, _after_what(job)) if live else _nobody(around, now)
    return _("Due for %(age)s%(held_up)s%(expiry)s.", age=age, held_up=held_up, expiry=expiry)


def _nobody(around: Around, now: datetime) -> Text:
    last = next(iter(around.workers), None)
    if last is None:
        return _(", but no worker is running: start `manage.py runworkers`")
    return _(
        ", but no worker is running (%(worker)s is silent for %(age)s): start `manage.py runworkers`",
        worker=str(last), age=_age(last.heartbeat_at, now),
    )  # fmt: skip


def _pause(row: Pause, now: datetime) -> Text:
    words = {
        "name": row.name,
        "by": _(" by %s", row.by) if row.by else "",
        "age": _age(row.created_at, now),
        "end": _("for another %s", span(row.until - now)) if row.until else _("until it is resumed"),
        "why": f" ({_open(row.why)})" if row.why else "",
    }
    if row.kind == Pause.Kind.QUEUE:
        return _("its queue %(name)r was paused%(by)s %(age)s ago %(end)s%(why)s", **words)
    return _("its type %(name)r was paused%(by)s %(age)s ago %(end)s%(why)s", **words)


def _expiry(job: Job, now: datetime) -> str:
    if not job.expires_at:
        return ""
    return _("; it is cancelled unless it starts within %s", span(job.expires_at - now))


def _waits_for(job: Job) -> Text:
    if job.attempts:
        return _("Attempt %(number)d of %(allowed)d", number=job.attempts + 1, allowed=job.max_attempts)
    return _("The next run") if job.token else _("The first run")


def _after_what(job: Any) -> str:
    lines = [line for line in job.history if line["cause"] != EDITED]
    last = lines[-1] if lines else None
    if not last:
        return ""
    if last["cause"] == REQUEUED:
        return _("; requeued %(age)s ago %(by)s", age=_line_age(job, last), by=_said(last["error"]))
    streak = 0
    for line in reversed(lines):
        if line["cause"] != last["cause"]:
            break
        streak += 1
    times = "" if streak == 1 else _(", %s times in a row", _counted(streak, len(job.history)))
    words = {"cause": last["cause"], "times": times, "error": _open(last["error"])}
    return _("; the last run ended as %(cause)r%(times)s: %(error)s", **words)


def _counted(streak: int, lines: int) -> str:
    """Say how long a streak is; between the first and the other lines of a full history some may have been dropped."""
    last = HISTORY_LIMIT - 1
    return _("at least %d", last) if lines >= HISTORY_LIMIT and streak >= last else str(streak)


def _said(words: str) -> Text:
    """Return who did something, and why, as the end of a sentence."""
    by, name = "by ", _open(words)
    if name == NO_REASON:
        return _("by a person: %s", _("no reason given"))
    return _("by %s", name.removeprefix(by)) if name.startswith(by) else _("by a person: %s", name)


def _open(words: Any) -> str:
    """Return what was said without its stop, to go on behind it."""
    return str(words).rstrip(".")


def _line_age(job: Any, line: dict[str, Any]) -> Text:
    """Return how long ago a line of the history was written: both times are the database's, as text in UTC."""
    try:
        return span(datetime.fromisoformat(job.clock_text) - datetime.fromisoformat(line["at"]))
    except (KeyError, TypeError, ValueError):  # a line that was written by hand
        return _("some time")


def _running(job: Any, now: datetime, worker: Worker | None) -> Text:
    assert job.locked_until is not None
    words = {
        "age": _age(job.last_started_at, now),
        "where": _("on %s", str(worker))
        if worker
        else _("in a worker process that is gone or has not said it is there"),
        "run": job.token,
        "asked": _asked_to_stop(job),
    }
    runs = (
        _("Runs alone, as a suspect, for %(age)s %(where)s (run %(run)d)%(asked)s", **words)
        if job.suspect
        else _("Runs for %(age)s %(where)s (run %(run)d)%(asked)s", **words)
    )
    if job.locked_until < now:
        late = _age(job.locked_until, now)
        return _("%(runs)s; its lease ran out %(late)s ago, and it goes back at the next sweep.", runs=runs, late=late)
    left = span(job.locked_until - now)
    if worker and now - worker.heartbeat_at > timedelta(seconds=2 * conf().heartbeat):
        silent = _age(worker.heartbeat_at, now)
        return _(
            "%(runs)s; the worker is silent for %(silent)s, and the job goes back in %(left)s.",
            runs=runs, silent=silent, left=left,
        )  # fmt: skip
    before = "" if job.cancel_reason is not None else _after_what(job)
    return _("%(runs)s, leased for another %(left)s%(before)s.", runs=runs, left=left, before=before)


def _asked_to_stop(job: Any) -> str:
    if job.cancel_reason is None:
        return ""
    asked: dict[str, Any] = next((line for line in reversed(job.history) if line["cause"] == ASKED_TO_STOP), {})
    beat = conf().heartbeat
    return _(
        "; it was asked to stop %(age)s ago %(by)s: its handler is told with a heartbeat (every %(seconds)s s), and it is "
        "cancelled when its run ends",
        age=_line_age(job, asked), by=_said(job.cancel_reason), seconds=number(beat, 0 if beat == int(beat) else 1),
    )  # fmt: skip


def _meanwhile(job: Any) -> str:
    """Say how a run ended that was asked to stop."""
    last = job.history[-1] if job.history else None
    if not last or last["run"] != job.token or last["cause"] == CALLED_OFF:
        return ""
    if last["cause"] == ASKED_TO_STOP:
        return _("; its run returned or was not begun")
    return _("; its run ended as %(cause)r: %(error)s", cause=last["cause"], error=_open(last["error"]))


def _took(job: Job) -> str:
    if job.finished_at is None or job.last_started_at is None:
        return ""
    time = span(job.finished_at - job.last_started_at)
    if job.token == 1:
        return _(", %s after its start", time)
    return _(", %(time)s after its start, in run %(run)d", time=time, run=job.token)


def _why(job: Job) -> str:
    if job.status == Job.Status.DEAD and job.suspect and job.last_error:
        return job.last_error.split("\n")[0]  # what ended it, of which the history has one run
    last = job.history[-1] if job.history else None
    if last and last["run"] == job.token:
        if last["cause"] == TOO_LATE:
            return _("The time by which it had to start passed before a worker took it.")
        return str(last["error"]) or _("no reason given")
    # Of a traceback what it says, and of several the last that was raised.
    return job.last_error.partition(CAME_FROM)[0].strip().rpartition("\n")[2] or _("no reason given")


def _age(since: datetime | None, now: datetime) -> Text:
    return _("some time") if since is None else span(now - since)
