"""Changes to a job that waits: its arguments, its priority, when it is due. A claim that comes first wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django_jobs import checked, notify
from django_jobs.engines import engine
from django_jobs.engines.causes import EDITED
from django_jobs.exceptions import InvalidJob, StateConflict
from django_jobs.models import ArchivedJob, Job
from django_jobs.models.clock import Clock, for_row, from_row
from django_jobs.queue import seen as acts
from django_jobs.queue.edited import Stored, edited
from django_jobs.texts import text as _

# Given a job as it is locked, what to write and the names of what that changes.
Wanted = Callable[[Any], tuple[dict[str, Any], list[str]]]


def edit(
    job_id: int,
    *,
    payload: Any = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    why: str = "",
    by: str = "",
    as_seen: str | None = None,
) -> tuple[str, ...]:
    """Change what is given of a job that waits; return the names of what is other than it was, none if nothing is.

    `payload` is `{"args": [...], "kwargs": {...}}`, checked as the arguments of an enqueue. What parked a job stays, and so
    do its key, which stands for the new arguments from then on, its attempts and the time by which it must start. `as_seen`
    is the `version` of the job that was seen.

    Raises JobDoesNotExist, StateConflict when the job does not wait or is not as seen, and InvalidJob or InvalidJobType
    when a value cannot be used; nothing is written then.
    """
    if priority is not None:
        checked.priority(priority)
    moment = None if run_at is None else checked.run_at(run_at)

    def wanted(job: Any) -> tuple[dict[str, Any], list[str]]:
        values: dict[str, Any] = {}
        names: list[str] = []
        if payload is not None and (new := edited(job, payload)).names:
            values["payload"] = Stored(new.text)
            names.append(new.what)
        if priority is not None and priority != job.priority:
            values["priority"] = priority
            names.append(_("priority"))
        if moment is not None and moment != from_row(job.run_at, job._state.db):
            values["run_at"] = _in_time(job, moment)
            names.append(_("due time"))
        return values, names

    return _write(job_id, wanted, acts.said(by, why), as_seen)


def run_now(job_id: int, *, why: str = "", by: str = "", as_seen: str | None = None) -> None:
    """Have a job that waits for its time, or a retry for its delay, be due at once.

    Raises JobDoesNotExist, and StateConflict when the job does not wait, is due already, or is not as seen.
    """

    def wanted(job: Any) -> tuple[dict[str, Any], list[str]]:
        if job.run_at <= job.now:
            raise StateConflict(
                _("Job %d is due already; what it waits for else is said on its page, and by explain().", job.pk)
            )
        return {"run_at": Clock()}, [_("due time")]

    _write(job_id, wanted, acts.said(by, why), as_seen)


def _in_time(job: Any, moment: datetime) -> datetime:
    alias = job._state.db
    if job.expires_at is not None and moment >= from_row(job.expires_at, alias):
        end = from_row(job.expires_at, alias).isoformat(sep=" ", timespec="seconds")
        words = {"moment": moment, "id": job.pk, "end": end}
        raise InvalidJob(_("run_at is %(moment)s; job %(id)d is cancelled unless it starts before %(end)s.", **words))
    return for_row(moment, alias)


def _write(job_id: int, wanted: Wanted, said: str, as_seen: str | None) -> tuple[str, ...]:
    found = engine()
    with found.acting():
        job = acts.locked(job_id)
        if isinstance(job, ArchivedJob) or job.status != Job.Status.READY:
            words = {"id": job_id, "state": acts.state(job), "archived": ""}
            if isinstance(job, ArchivedJob):
                words["archived"] = _(" and archived")
            raise StateConflict(
                _(
                    "Job %(id)d%(state)s%(archived)s; only a job that waits can be changed. Nothing was changed.",
                    **words,
                )
            )
        acts.expect(job, [Job.Status.READY], as_seen)
        values, names = wanted(job)
        if names:
            said = f"{said} ({', '.join(names)})"
            acts.change(job, "is edited", said, history=acts.history(job, EDITED, said), **values)
            if job.parked is None:
                notify.ready(found, job.queue)
    return tuple(names)
