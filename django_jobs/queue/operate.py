"""What people do to jobs. Every act names the state that it saw, so that none undoes what happened meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, Literal

from django.db import IntegrityError
from django.db.models import Case, F, Value, When

from django_jobs import log, notify
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.causes import ASKED_TO_STOP, CALLED_OFF, REQUEUED
from django_jobs.engines.values import NewJob, Terms
from django_jobs.exceptions import InvalidJob, JobDoesNotExist, StateConflict, WaitTimeout
from django_jobs.models import ArchivedJob, Job, find
from django_jobs.models.clock import Clock, from_row
from django_jobs.outcomes import seconds
from django_jobs.payload import dump
from django_jobs.queue import seen as acts
from django_jobs.queue import told
from django_jobs.queue.edited import Edited, Stored, edited
from django_jobs.texts import text as _

FIRST_WAIT, LONGEST_WAIT = 0.02, 0.4
UNFINISHED = (Job.Status.READY, Job.Status.RUNNING)
FINISHED = (Job.Status.DONE, Job.Status.FAILED, Job.Status.DEAD, Job.Status.CANCELLED)


def cancel(
    job_id: int, *, why: str = "", by: str = "", states: Collection[str] = UNFINISHED
) -> Literal["cancelled", "asked"]:
    """End a job that waits as cancelled, or ask the run of one that runs to stop.

    A running handler is told within a heartbeat, by `context.should_stop`; however its run ends, the job is cancelled
    then. Returns "cancelled" or "asked". Raises JobDoesNotExist, or StateConflict when the job has ended or is in none of
    the given states.
    """
    said = acts.said(by, why)
    for _try in range(acts.TRIES):
        seen = acts.see(job_id)
        if seen.status not in UNFINISHED:
            words = {"id": job_id, "state": _(seen.status)}
            raise StateConflict(
                _("Job %(id)d is %(state)s already; only what waits or runs can be cancelled.", **words)
            )
        acts.expect(seen, states)
        if seen.status == Job.Status.RUNNING:
            if seen.cancel_reason is not None or _ask_to_stop(seen, said):
                return "asked"
        elif _call_off(seen, said):
            return "cancelled"
    raise acts.busy(job_id)


def _ask_to_stop(seen: Any, said: str) -> bool:
    with engine(seen._state.db).acting():
        return acts.change(
            seen,
            "is asked to stop",
            said,
            unless_asked=True,
            cancel_reason=said,
            history=acts.history(seen, ASKED_TO_STOP, said),
        )


def _call_off(seen: Any, said: str) -> bool:
    with engine(seen._state.db).acting():
        return acts.change(
            seen,
            "is cancelled",
            said,
            status=Job.Status.CANCELLED,
            parked=None,
            finished_at=Clock(),
            cancel_reason=said,
            history=acts.history(seen, CALLED_OFF, said),
            idempotency_key=Case(When(key_holds=Job.KeyHolds.WINDOW, then=F("idempotency_key")), default=Value(None)),
        )


def requeue(
    job_id: int,
    *,
    payload: Any = None,
    why: str = "",
    by: str = "",
    states: Collection[str] = FINISHED,
    as_seen: str | None = None,
) -> int:
    """Have a job that ended, however it did, run again at once, with all its attempts; return its id.

    With other arguments if `payload` is given, as `{"args": [...], "kwargs": {...}}`: checked as those of an enqueue.
    `as_seen` is the `version` of the job that was seen.

    Its history stays, and a suspicion that it killed its process. A key that its end has freed is taken again. For one that
    is archived a new job is made, without the key, and that one's id is returned: another job may have the key by now, and
    what knew the old one by its id and its runs must not meet it again.

    Raises JobDoesNotExist, or StateConflict when the job has not ended, is in none of the given states, was made anew
    before, is not as seen, or another job has its key by now; InvalidJob or InvalidJobType when its type does not take the
    arguments. Nothing is written then.
    """
    said = acts.said(by, why)
    for _try in range(acts.TRIES):
        seen = acts.see(job_id)
        if seen.status in UNFINISHED:
            state = acts.state(seen)
            raise StateConflict(_("Job %(id)d%(state)s; it can be requeued when it has ended.", id=job_id, state=state))
        acts.expect(seen, states, as_seen)
        new = None if payload is None else edited(seen, payload)
        words = f"{said} (with other {new.what})" if new is not None and new.names else said
        if isinstance(seen, ArchivedJob):
            return _make_anew(seen, words, new)
        if _requeue(seen, words, new):
            return job_id
    raise acts.busy(job_id)


def _make_anew(seen: Any, said: str, new: Edited | None) -> int:
    alias = seen._state.db
    with engine(alias).acting():
        row = ArchivedJob.objects.using(alias).select_for_update().filter(pk=seen.pk).first()
        if row is None:
            raise JobDoesNotExist(_("There is no job %d.", seen.pk))
        if row.requeued_as is not None and find(alias, row.requeued_as) is not None:
            raise StateConflict(
                _(
                    "Job %(id)d is archived, and was requeued as job %(new)d; look at that one.",
                    id=seen.pk,
                    new=row.requeued_as,
                )
            )
        anew = _as_new(row, new)
        job_id = engine(alias).insert(anew).pk
        Job.objects.using(alias).filter(pk=job_id).update(
            suspect=row.suspect,
            parked=Job.Parked.SUSPECT if row.suspect else None,
            history=[{**acts.line(seen, REQUEUED, f"{said} (it was job {seen.pk}, which is archived)"), "run": 0}],
        )
        ArchivedJob.objects.using(alias).filter(pk=seen.pk).update(requeued_as=job_id)
        if told.enqueues_are_heard():
            told.enqueued(alias, [(job_id, anew.terms)])
        log.when_committed(alias, log.job_act, seen.pk, f"is archived, and requeued as job {job_id}", said)
    return job_id


def _as_new(row: ArchivedJob, new: Edited | None) -> NewJob:
    """Return the call that an archived job was, without its key, or another one in its place."""
    meta = {**row.meta, "requeued_from": row.pk}
    meta.pop("key", None)
    terms = Terms(
        type=row.type,
        queue=row.queue,
        priority=row.priority,
        key_holds=Job.KeyHolds.WINDOW.value,
        run_at=None,
        delay=0.0,
        expires_at=None,
        expires_in=None,
        max_attempts=row.max_attempts,
        timeout=row.timeout,
        meta=dump(meta),
        schedule=row.schedule,
        slot=None if row.slot is None else from_row(row.slot, str(row._state.db)),
    )
    return NewJob(terms, dump(row.payload) if new is None else new.text, None)


def _requeue(seen: Any, said: str, new: Edited | None) -> bool:
    found = engine(seen._state.db)
    key = seen.idempotency_key or seen.meta.get("key")
    others: dict[str, Any] = {} if new is None else {"payload": Stored(new.text)}
    try:
        with found.acting():
            requeued = acts.change(
                seen,
                "is requeued",
                said,
                status=Job.Status.READY,
                run_at=Clock(),
                expires_at=None,
                attempts=0,
                losses=min(seen.losses, 1),
                parked=Job.Parked.SUSPECT if seen.suspect else None,
                cancel_reason=None,
                finished_at=None,
                progress=None,
                result=None,
                idempotency_key=key,
                history=acts.history(seen, REQUEUED, said),
                **others,
            )
            if requeued and not seen.suspect:
                notify.ready(found, seen.queue)
            return requeued
    except IntegrityError:
        holder = found.holder(key)
        if holder is None:
            return False
        raise StateConflict(
            _(
                "Job %(id)d cannot be requeued: its idempotency key %(key)r is held by job %(holder)d, which%(state)s.",
                id=seen.pk,
                key=key,
                holder=holder.pk,
                state=acts.state(holder),
            )
        ) from None


def wait(job: Job, timeout: float) -> Job:
    """See `Job.wait`."""
    limit = seconds(timeout, "timeout")
    found = engine(job._state.db or jobs_alias())
    if found.connection.in_atomic_block:
        raise InvalidJob(
            f"wait() for job {job.pk} inside a transaction: no worker sees the job before it commits. Wait outside."
        )
    until, pause = time.monotonic() + limit, FIRST_WAIT
    while job.refresh().status in UNFINISHED:
        left = until - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"Job {job.pk} has not ended within {limit:g} s: {job.explain()}")
        threading.Event().wait(min(pause, left))
        pause = min(pause * 1.5, LONGEST_WAIT)
    return job
