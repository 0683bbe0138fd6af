"""The acts of people on many jobs: one transaction for a batch, and one refusal stops no other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from django_jobs import log
from django_jobs.conf import conf
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import JobDoesNotExist, StateConflict
from django_jobs.models import ArchivedJob, Job, find
from django_jobs.queue import operate
from django_jobs.queue.choose import Choice

# Seconds after which a batch is committed although it is not done: workers must not wait for its rows.
LONGEST_HOLD = 1.0


@dataclass(slots=True)
class Came:
    """What came of a batch: how many jobs by what was done to them, and why others were refused."""

    done: dict[str, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    # Archived jobs that were made anew, and the ids that they have now.
    anew: dict[int, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        if number:
            self.done[what] = self.done.get(what, 0) + number


Act = Callable[[Came, int], None]


def requeue(choice: Choice, *, why: str = "", by: str = "") -> Iterator[Came]:
    """Requeue the jobs chosen; return what came of each batch as soon as it is committed."""

    def act(came: Came, job_id: int) -> None:
        again = operate.requeue(job_id, why=why, by=by, states=choice.states)
        came.count("requeued")
        if again != job_id:
            came.anew[job_id] = again

    return _each(choice, act)


def cancel(choice: Choice, *, why: str = "", by: str = "") -> Iterator[Came]:
    """Cancel the jobs chosen; return what came of each batch as soon as it is committed."""

    def act(came: Came, job_id: int) -> None:
        came.count(operate.cancel(job_id, why=why, by=by, states=choice.states))

    return _each(choice, act)


def _each(choice: Choice, act: Act) -> Iterator[Came]:
    for batch in choice.batches():
        left = deque(batch)
        while left:
            came = Came()
            until = time.monotonic() + LONGEST_HOLD
            with engine().acting():
                while left and time.monotonic() < until:
                    _act(came, left.popleft(), act)
            yield came


def _act(came: Came, job_id: int, act: Act) -> None:
    try:
        act(came, job_id)
    except (StateConflict, JobDoesNotExist) as error:
        came.refused[job_id] = str(error)


def purge(choice: Choice, *, with_keys: bool = False, dry_run: bool = False, by: str = "") -> Iterator[Came]:
    """Delete the jobs chosen, except those whose key must still hold; return what came of each batch when it is committed.

    A job that finished within IDEMPOTENCY_WINDOW and has a key is kept unless `with_keys`: an enqueue with its key would
    run its work again. Rows that somebody holds are kept. What runs is never deleted, whatever the choice says.
    """
    rows = choice.rows().exclude(status=Job.Status.RUNNING)
    window = timedelta(seconds=conf().idempotency_window)
    holds = Q(idempotency_key__isnull=False, finished_at__gt=Now() - window)
    deletable = rows if with_keys else rows.exclude(holds)
    left = choice.limit
    for batch in replace(choice, limit=None).batches():
        came = Came()
        with engine().acting():
            free = deletable.filter(pk__in=batch).order_by("pk").select_for_update(skip_locked=True)
            ids = list(free.values_list("pk", flat=True)[:left])
            if ids and not dry_run:
                Job.objects.using(rows.db).filter(pk__in=ids).delete()
                log.when_committed(rows.db, log.purged, len(ids), ids[0], ids[-1], by)
        came.count("to be deleted" if dry_run else "deleted", len(ids))
        if choice.ids is not None:
            came.refused = _kept(choice, set(batch) - set(ids))
        elif not with_keys:
            came.count("kept for their keys", rows.filter(holds, pk__in=batch).count())
        yield came
        if left is not None:
            left -= len(ids)
            if left <= 0:
                return


def _kept(choice: Choice, ids: Collection[int]) -> dict[int, str]:
    found = {job_id: find(jobs_alias(), job_id) for job_id in ids}
    return {job_id: _why_kept(job_id, found.get(job_id), choice) for job_id in sorted(ids)}


def _why_kept(job_id: int, job: Job | ArchivedJob | None, choice: Choice) -> str:
    if job is None:
        return f"There is no job {job_id}."
    if isinstance(job, ArchivedJob):
        return f"Job {job_id} is archived; it is deleted with all that was archived on its day, after ARCHIVE_FOR."
    if job.status == Job.Status.RUNNING:
        return f"Job {job_id} runs; what runs is never deleted. Cancel it first."
    if job.status not in choice.states:
        if job.status == Job.Status.READY:
            return f"Job {job_id} waits; what waits is deleted only when --status ready is said."
        return f"Job {job_id} is {job.status}; only {' or '.join(sorted(choice.states))} was asked for."
    if job.idempotency_key is not None:
        return (
            f"Job {job_id} has the idempotency key {job.idempotency_key!r} and finished within IDEMPOTENCY_WINDOW: "
            "without it the same enqueue would run again. --with-keys deletes it nevertheless."
        )
    return f"Job {job_id} is held by another transaction; try again."
