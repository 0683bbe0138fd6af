"""What the acts of people upon a job share: the state that was seen, which each write names, and the words for it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from django.db.models.functions import Now

from django_jobs import log, payload
from django_jobs.engines import jobs_alias
from django_jobs.engines.causes import HISTORY_LIMIT, NO_REASON
from django_jobs.exceptions import InvalidJobType, JobDoesNotExist, StateConflict, shown
from django_jobs.models import Job, find
from django_jobs.models.clock import ClockText
from django_jobs.models.record import JobRecord
from django_jobs.texts import Text, either
from django_jobs.texts import text as _

TEXT_LIMIT = 1000
TRIES = 20


def see(job_id: int) -> Any:
    """Return a job by id, also from the archive, with the database's `clock` as text; raise JobDoesNotExist."""
    found = find(jobs_alias(), job_id, clock=ClockText())
    if found is None:
        raise JobDoesNotExist(_("There is no job %d.", job_id))
    return found


def locked(job_id: int) -> Any:
    """Return a job as it is until the transaction ends, with `clock` and, as a time, `now`; raise JobDoesNotExist.

    One that is archived is not locked: it changes no more.
    """
    rows = Job.objects.using(jobs_alias()).select_for_update().filter(pk=job_id)
    found = rows.annotate(clock=ClockText(), now=Now()).first()
    return see(job_id) if found is None else found


def version(job: JobRecord) -> str:
    """Return a word that is another one after everything that was done to a job, or that it did."""
    last = job.history[-1:] if isinstance(job.history, list) else []
    parts = (job.status, job.token, job.priority, job.run_at, job.cancel_reason is None, len(job.history or []), last)
    return hashlib.sha256(repr(parts).encode(errors="replace")).hexdigest()[:16]


def expect(seen: Any, states: Collection[str], as_seen: str | None = None) -> None:
    """Raise StateConflict unless a job is in one of the states and, where a version was seen, still is of that."""
    if seen.status not in states:
        raise StateConflict(
            _(
                "Job %(id)d%(state)s; only %(wanted)s was asked for.",
                id=seen.pk, state=state(seen), wanted=either(sorted(states)),
            )
        )  # fmt: skip
    if as_seen is not None and version(seen) != as_seen:
        raise StateConflict(
            _(
                "Job %(id)d was changed since it was shown: it%(state)s now. Nothing was done; look at it again.",
                id=seen.pk,
                state=state(seen),
            )
        )


def change(seen: Any, what: str, said: str, *, unless_asked: bool = False, **values: Any) -> bool:
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


def history(seen: Any, cause: str, said: str) -> list[dict[str, Any]]:
    """Return the history with a line more."""
    lines = seen.history
    if not isinstance(lines, list):
        said = _("The history of job %d is no list; somebody wrote it by hand. Set it to [] first.", seen.pk)
        raise StateConflict(said)
    kept = [lines[0], *lines[2:]] if len(lines) >= HISTORY_LIMIT else lines
    return [*kept, line(seen, cause, said)]


def line(seen: Any, cause: str, said: str) -> dict[str, Any]:
    return {"run": seen.token, "cause": cause, "error": said, "worker": "", "seconds": 0.0, "at": seen.clock}


def said(by: str, why: str) -> str:
    """Return who did it and why as it is kept; raise InvalidJobType unless both are texts."""
    for name, value in (("by", by), ("why", why)):
        if not isinstance(value, str):
            raise InvalidJobType(_("%(name)s is %(value)s; give text.", name=name, value=shown(value)))
    found = ": ".join(part for part in (by and f"by {by}", why) if part)
    return payload.storable(found or NO_REASON, TEXT_LIMIT)


def state(job: Any) -> Text:
    """Return the state of a job as what it does, to stand behind a word."""
    if job.status == Job.Status.READY:
        return _(" waits")
    return _(" runs") if job.status == Job.Status.RUNNING else _(" is %s", _(job.status))


def busy(job_id: int) -> StateConflict:
    words = {"id": job_id, "number": TRIES}
    return StateConflict(_("Job %(id)d changed its state %(number)d times meanwhile; try again.", **words))
