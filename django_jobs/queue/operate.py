"""What people do to jobs. Every act names the state that it saw, so that none undoes what happened meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, Literal

from django.db import IntegrityError
from django.db.models import Case, F, Value, When

from django_jobs import log, notify, payload
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.causes import ASKED_TO_STOP, CALLED_OFF, HISTORY_LIMIT, REQUEUED
from django_jobs.engines.values import NewJob, Terms
from django_jobs.exceptions import InvalidJob, InvalidJobType, JobDoesNotExist, StateConflict, WaitTimeout, shown
from django_jobs.models import ArchivedJob, Job, find
from django_jobs.models.clock import Clock, ClockText, from_row
from django_jobs.outcomes import seconds

TEXT_LIMIT = 1000
TRIES = 20
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
    said = _said(by, why)
    for _ in range(TRIES):
        seen = _see(job_id)
        if seen.status not in UNFINISHED:
            raise StateConflict(f"Job {job_id} is {seen.status} already; only what waits or runs can be cancelled.")
        _expect(seen, states)
        if seen.status == Job.Status.RUNNING:
            if seen.cancel_reason is not None or _ask_to_stop(seen, said):
                return "asked"
        elif _call_off(seen, said):
            return "cancelled"
    raise _busy(job_id)


def _ask_to_stop(seen: Any, said: str) -> bool:
    with engine(seen._state.db).acting():
        return _change(
            seen,
            "is asked to stop",
            said,
            unless_asked=True,
            cancel_reason=said,
            history=_history(seen, ASKED_TO_STOP, said),
        )


def _call_off(seen: Any, said: str) -> bool:
    with engine(seen._state.db).acting():
        return _change(
            seen,
            "is cancelled",
            said,
            status=Job.Status.CANCELLED,
            parked=None,
            finished_at=Clock(),
            cancel_reason=said,
            history=_history(seen, CALLED_OFF, said),
            idempotency_key=Case(When(key_holds=Job.KeyHolds.WINDOW, then=F("idempotency_key")), default=Value(None)),
        )


def requeue(job_id: int, *, why: str = "", by: str = "", states: Collection[str] = FINISHED) -> int:
    """Have a job that ended, however it did, run again at once, with all its attempts; return its id.

    Its history stays, and a suspicion that it killed its process. A key that its end has freed is taken again. For one that
    is archived a new job is made, without the key, and that one's id is returned: another job may have the key by now, and
    what knew the old one by its id and its runs must not meet it again.

    Raises JobDoesNotExist, or StateConflict when the job has not ended, is in none of the given states, was made anew
    before, or another job has its key by now.
    """
    said = _said(by, why)
    for _ in range(TRIES):
        seen = _see(job_id)
        if seen.status in UNFINISHED:
            raise StateConflict(f"Job {job_id} {_state(seen)}; it can be requeued when it has ended.")
        _expect(seen, states)
        if isinstance(seen, ArchivedJob):
            return _make_anew(seen, said)
        if _requeue(seen, said):
            return job_id
    raise _busy(job_id)


def _make_anew(seen: Any, said: str) -> int:
    alias = seen._state.db
    with engine(alias).acting():
        row = ArchivedJob.objects.using(alias).select_for_update().filter(pk=seen.pk).first()
        if row is None:
            raise JobDoesNotExist(f"There is no job {seen.pk}.")
        if row.requeued_as is not None and find(alias, row.requeued_as) is not None:
            raise StateConflict(
                f"Job {seen.pk} is archived, and was requeued as job {row.requeued_as}; look at that one."
            )
        job_id = engine(alias).insert(_as_new(row)).pk
        Job.objects.using(alias).filter(pk=job_id).update(
            suspect=row.suspect,
            parked=Job.Parked.SUSPECT if row.suspect else None,
            history=[{**_line(seen, REQUEUED, f"{said} (it was job {seen.pk}, which is archived)"), "run": 0}],
        )
        ArchivedJob.objects.using(alias).filter(pk=seen.pk).update(requeued_as=job_id)
        log.when_committed(alias, log.job_act, seen.pk, f"is archived, and requeued as job {job_id}", said)
    return job_id


def _as_new(row: ArchivedJob) -> NewJob:
    """Return the call that an archived job was, without its key."""
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
        meta=payload.dump(meta),
        schedule=row.schedule,
        slot=None if row.slot is None else from_row(row.slot, str(row._state.db)),
    )
    return NewJob(terms, payload.dump(row.payload), None)


def _requeue(seen: Any, said: str) -> bool:
    found = engine(seen._state.db)
    key = seen.idempotency_key or seen.meta.get("key")
    try:
        with found.acting():
            requeued = _change(
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
                history=_history(seen, REQUEUED, said),
            )
            if requeued and not seen.suspect:
                notify.ready(found, seen.queue)
            return requeued
    except IntegrityError:
        holder = found.holder(key)
        if holder is None:
            return False
        raise StateConflict(
            f"Job {seen.pk} cannot be requeued: its idempotency key {key!r} is held by job {holder.pk}, which "
            f"{_state(holder)}."
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


def _see(job_id: int) -> Any:
    found = find(jobs_alias(), job_id, clock=ClockText())
    if found is None:
        raise JobDoesNotExist(f"There is no job {job_id}.")
    return found


def _expect(seen: Any, states: Collection[str]) -> None:
    if seen.status not in states:
        raise StateConflict(f"Job {seen.pk} {_state(seen)}; only {' or '.join(sorted(states))} was asked for.")


def _change(seen: Any, what: str, said: str, *, unless_asked: bool = False, **values: Any) -> bool:
    """Write unless the job has moved on; whether a claim was made since is told by the token. Log it when it is true.

    `unless_asked`: nor when its run was asked to stop meanwhile, which changes neither state nor token.
    """
    rows = Job.objects.using(seen._state.db).filter(pk=seen.pk, status=seen.status, token=seen.token)
    if unless_asked:
        rows = rows.filter(cancel_reason__isnull=True)
    changed = bool(rows.update(**values))
    if changed:
        log.when_committed(rows.db, log.job_act, seen.pk, what, said)
    return changed


def _history(seen: Any, cause: str, said: str) -> list[dict[str, Any]]:
    lines = seen.history
    if not isinstance(lines, list):
        raise StateConflict(f"The history of job {seen.pk} is no list; somebody wrote it by hand. Set it to [] first.")
    kept = [lines[0], *lines[2:]] if len(lines) >= HISTORY_LIMIT else lines
    return [*kept, _line(seen, cause, said)]


def _line(seen: Any, cause: str, said: str) -> dict[str, Any]:
    return {"run": seen.token, "cause": cause, "error": said, "worker": "", "seconds": 0.0, "at": seen.clock}


def _said(by: str, why: str) -> str:
    for name, value in (("by", by), ("why", why)):
        if not isinstance(value, str):
            raise InvalidJobType(f"{name} is {shown(value)}; give text.")
    said = ": ".join(part for part in (by and f"by {by}", why) if part)
    return payload.storable(said or "no reason given", TEXT_LIMIT)


def _state(job: Job) -> str:
    return {Job.Status.READY: "waits", Job.Status.RUNNING: "runs"}.get(Job.Status(job.status), f"is {job.status}")


def _busy(job_id: int) -> StateConflict:
    return StateConflict(f"Job {job_id} changed its state {TRIES} times meanwhile; try again.")
