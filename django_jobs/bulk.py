"""Acts upon all jobs that a filter finds, carried out by a job of our own: begun, cancelled and resumed here."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, OperationalError
from django.db.models import Max, Min

from django_jobs import checked, log, payload
from django_jobs.context import Context
from django_jobs.decorators import job
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import InvalidJob, JobDoesNotExist, StateConflict
from django_jobs.models import BulkAct, Job, JobQuerySet, Pause, Worker
from django_jobs.models.clock import Clock
from django_jobs.outcomes import Snooze
from django_jobs.queue import bulk_log, operate
from django_jobs.queue.bulk_acts import TYPE, fits, under_way
from django_jobs.queue.bulk_step import step
from django_jobs.queue.sought import Sought
from django_jobs.texts import text as _

PRIORITY = 100
# A run lasts so many seconds at most, so that no stop or drain of its process waits for it; the next goes on.
RUN_SECONDS = 30.0
# After a step that met a lock or a deadlock.
AGAIN_SECONDS = 1.0
DEADLOCK = "40P01"
# On SQLite, between two steps: whoever waits to write asks again after so long at most.
REST_ON_SQLITE = 0.1
# Where no queue of a worker's is left that is not paused, and there is one that serves all.
OWN_QUEUE = "django_jobs.bulk"
MOST_PER_MINUTE = 1_000_000
TEXT_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person wants to be done to all that a filter finds.

    `queue`: where the jobs are to be moved. `with_keys`: whether jobs are deleted whose idempotency key must still hold.
    `per_minute`: how many jobs at most, None for as fast as is good.
    """

    act: str
    sought: Sought
    queue: str = ""
    with_keys: bool = False
    per_minute: int | None = None
    by: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        if self.act not in BulkAct.Act.values:
            raise InvalidJob(f"The act is {self.act!r}; give one of {', '.join(BulkAct.Act.values)}.")
        if not fits(self.act, self.sought):
            raise InvalidJob(f"Nothing that is {self.sought.state} can be meant by {self.act!r}.")
        if self.act == BulkAct.Act.MOVE:
            checked.queue(self.queue)
        if self.per_minute is not None:
            checked.whole(self.per_minute, "per_minute", 1, MOST_PER_MINUTE)


@job(name=TYPE, takes_context=True, priority=PRIORITY, timeout=None)
def carry_out(context: Context, act_id: int) -> Snooze | dict[str, Any]:
    """Take the steps of an act until it is done, cancelled, or another job's; the next run goes on with what is left."""
    alias, until = jobs_alias(), time.monotonic() + RUN_SECONDS
    rest = REST_ON_SQLITE if engine(alias).name == "sqlite" else 0.0
    while not context.should_stop and time.monotonic() < until:
        try:
            act, pause = step(alias, act_id, context.job_id, context.run)
        except StateConflict:
            return Snooze(AGAIN_SECONDS)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != DEADLOCK:
                raise
            return Snooze(AGAIN_SECONDS)
        if act is not None and act.counted:
            context.progress(min(act.handled, act.counted), act.counted)
        if pause is None:
            return {"state": "gone"} if act is None else {"done": act.done, "refused": act.refused}
        if pause > 0:
            return Snooze(pause)
        threading.Event().wait(rest)
    return Snooze(0)


def begin(wanted: Wanted, token: UUID, *, counted: int | None, is_capped: bool) -> tuple[BulkAct, bool]:
    """Store an act and the job that carries it out, both or none; return it, and whether it was made now.

    It was not when the same form was sent before, or when the same act upon the same filter is under way: that one is
    returned. `counted` is what the person was told that the filter finds. Raises StateConflict when others held the
    database for too long.
    """
    alias = jobs_alias()
    known = BulkAct.objects.using(alias)
    try:
        with engine(alias).acting():
            if (found := _same(wanted, token)) is not None:
                return found, False
            ends = Job.objects.using(alias).aggregate(first=Min("pk"), last=Max("pk"))
            start = (ends["first"] or 1) - 1
            act = known.create(
                token=token,
                act=wanted.act,
                sought=wanted.sought.as_json(),
                queue=wanted.queue if wanted.act == BulkAct.Act.MOVE else "",
                with_keys=wanted.with_keys,
                per_minute=wanted.per_minute,
                by=payload.storable(wanted.by)[:255],
                why=payload.storable(wanted.why, TEXT_LIMIT),
                counted=counted,
                is_capped=is_capped,
                start=start,
                after=start,
                upto=ends["last"] or 0,
                created_at=Clock(),
            )
            _enqueue(act)
            log.when_committed(alias, bulk_log.said, act.pk, act.act, "begun", act.by, act.why)
    except IntegrityError:
        return known.get(token=token), False  # the other of two clicks was first
    return known.get(pk=act.pk), True


def _same(wanted: Wanted, token: UUID) -> BulkAct | None:
    alias = jobs_alias()
    sent = BulkAct.objects.using(alias).filter(token=token).first()
    if sent is not None:
        return sent
    alike = under_way(alias).filter(act=wanted.act, queue=wanted.queue).order_by("pk")
    return next((act for act in alike if act.sought == wanted.sought.as_json()), None)


def _enqueue(act: BulkAct) -> None:
    """Give an act a job of its own, in a queue where a worker takes it."""
    alias = jobs_alias()
    made = carry_out.using(queue=_queue(alias)).enqueue(act.pk)
    BulkAct.objects.using(alias).filter(pk=act.pk).update(job_id=made.pk, run=0)


def _queue(alias: str) -> str:
    """Return a queue that is not paused and that a live worker serves which knows the type; the usual one if none is."""
    live = [worker for worker in Worker.objects.using(alias).live() if worker.claims and TYPE in (worker.types or [])]
    paused = Pause.objects.using(alias).names(Pause.Kind.QUEUE)
    usual = carry_out.job_type.queue
    served = {queue for worker in live for queue in worker.queues or ()}
    if any(worker.queues is None for worker in live):
        served |= {usual, OWN_QUEUE}
    usable = sorted(served - paused, key=lambda queue: (queue != usual, queue))
    return usable[0] if usable else usual


def cancel(act_id: int, *, why: str = "", by: str = "") -> BulkAct:
    """Have an act end behind the step that is under way; return it. What was done to jobs stays done.

    Raises StateConflict when it has ended or was cancelled before, and JobDoesNotExist when there is no such act.
    """
    with engine().acting():
        act = _locked(act_id)
        if act.state not in BulkAct.UNDER_WAY:
            words = {"id": act_id, "state": _(act.state)}
            raise StateConflict(
                _("Act %(id)d is %(state)s already; only one that is under way can be cancelled.", **words)
            )
        act.state, act.finished_at = BulkAct.State.CANCELLED, Clock()
        act.save(update_fields=["state", "finished_at"])
        try:
            operate.cancel(act.job_id or 0, why=why, by=by)
        except (StateConflict, JobDoesNotExist):
            pass  # it ended by itself
        log.when_committed(jobs_alias(), bulk_log.said, act.pk, act.act, "cancelled", by, why)
    return BulkAct.objects.using(jobs_alias()).get(pk=act_id)


def resume(act_id: int, *, why: str = "", by: str = "") -> BulkAct:
    """Have an act go on behind the last job that it came to, with a job of its own; return it.

    Raises StateConflict when it is done or goes on by itself, and JobDoesNotExist when there is no such act.
    """
    with engine().acting():
        act = _locked(act_id)
        if act.state == BulkAct.State.DONE:
            raise StateConflict(_("Act %d is done; there is nothing left of it.", act_id))
        if act.state in BulkAct.UNDER_WAY and not has_stopped(act):
            raise StateConflict(_("Act %d is under way.", act_id))
        act.state, act.finished_at, act.began_at = BulkAct.State.WAITING, None, None
        act.save(update_fields=["state", "finished_at", "began_at"])
        _enqueue(act)
        log.when_committed(jobs_alias(), bulk_log.said, act.pk, act.act, "resumed", by, why)
    return BulkAct.objects.using(jobs_alias()).get(pk=act_id)


def has_stopped(act: BulkAct) -> bool:
    """Tell whether an act is under way by its own row and yet nothing goes on: its job was cancelled, deleted, or is dead."""
    return act.state in BulkAct.UNDER_WAY and not carriers(jobs_alias()).filter(pk=act.job_id or 0).exists()


def carriers(alias: str) -> JobQuerySet:
    """Return the jobs that have acts to carry out."""
    found: JobQuerySet = Job.objects.using(alias).filter(type=TYPE, status__in=operate.UNFINISHED)
    return found


def _locked(act_id: int) -> BulkAct:
    act = BulkAct.objects.using(jobs_alias()).select_for_update().filter(pk=act_id).first()
    if act is None:
        raise JobDoesNotExist(_("There is no act %d.", act_id))
    return act
