"""One step of an act upon many jobs: a transaction with what was done to some of them and how far the act is by then.

So what was killed in the midst of a step has done nothing, and nothing is done twice to a job by one act.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, transaction
from django.db.models import BooleanField, Case, F, Q, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Now

from django_jobs import log
from django_jobs.conf import conf
from django_jobs.engines import engine
from django_jobs.exceptions import JobDoesNotExist, StateConflict
from django_jobs.models import BulkAct, Job, JobQuerySet
from django_jobs.models.clock import Clock
from django_jobs.queue import bulk_log, operate, operate_many, seen
from django_jobs.queue.archive import is_of_a_row, reason
from django_jobs.queue.bulk_acts import meant_by, states
from django_jobs.queue.choose import SPAN
from django_jobs.queue.sought import Sought
from django_jobs.texts import kept, of
from django_jobs.texts import text as _

# Seconds after which a step is committed: nobody is to wait for its rows. On SQLite all writers wait for it.
LONGEST, LONGEST_ON_SQLITE = 0.5, 0.2
BATCH = 200
REFUSALS_KEPT = 100
# With a pace jobs are acted upon in helpings, about so many seconds apart.
HELPING = 5


@dataclass(slots=True)
class Came:
    """What came of a step."""

    done: int = 0
    asked: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    # It is to end here.
    is_full: bool = False


class Stepped(NamedTuple):
    """How far an act is, None if it is gone; and the seconds until its next step, None when there is none."""

    act: BulkAct | None
    pause: float | None


def step(alias: str, act_id: int, job_id: int, run: int) -> Stepped:
    """Take a step of an act, for a run of the job that carries it out; there is none for an earlier run or another job.

    Raises StateConflict when others held what it needs for as long as an enqueue would wait.
    """
    found = engine(alias)
    longest = LONGEST_ON_SQLITE if found.name == "sqlite" else LONGEST
    with found.acting():
        rows = BulkAct.objects.using(alias).annotate(clock=Now()).select_for_update()
        act: Any = rows.filter(pk=act_id, state__in=BulkAct.UNDER_WAY, job_id=job_id, run__lte=run).first()
        if act is None:
            return Stepped(BulkAct.objects.using(alias).filter(pk=act_id).first(), None)
        pause = _helping(act)
        if pause <= 0:
            pause = _go_on(act, time.monotonic() + longest)
        act.run = run
        act.save(using=alias)
        return Stepped(act, None if act.state == BulkAct.State.DONE else pause)


def _helping(act: Any) -> float:
    """Begin the next helping if it is time; return the seconds until it is when the present one is used up."""
    if act.per_minute is None:
        return 0.0
    size = _size(act.per_minute)
    interval = timedelta(seconds=60 * size / act.per_minute)
    passed = None if act.paced_at is None else act.clock - act.paced_at
    if passed is None or passed >= interval:
        # Late by less than one helping, it keeps time; what was missed by more is not made up for.
        keeps_time = passed is not None and passed < 2 * interval
        act.paced_at, act.paced = act.paced_at + interval if keeps_time else act.clock, 0
    elif act.paced >= size:
        return float((interval - passed).total_seconds())
    return 0.0


def _size(per_minute: int) -> int:
    return max(1, per_minute * HELPING // 60)


def _go_on(act: Any, until: float) -> float:
    """Act until it is time, the helping is used up or all is gone through; return the seconds to pause."""
    came = Came()
    left = _left(act, came)
    while act.after < act.upto and left:
        act.after = _batch(act, came, min(BATCH, left), until)
        left = _left(act, came)
        if came.is_full or time.monotonic() >= until:
            break
    _note(act, came)
    if came.done or came.refused:
        numbers = came.done, len(came.refused), act.after
        log.when_committed(act._state.db, bulk_log.stepped, act.pk, act.act, *numbers, act.by)
    return _helping(act) if not left else 0.0


def _left(act: Any, came: Came) -> int:
    """Return how many jobs may be acted upon now."""
    return BATCH if act.per_minute is None else _size(act.per_minute) - act.paced - came.done


def _note(act: Any, came: Came) -> None:
    if act.began_at is None:
        act.began_at, act.began_with = act.clock, act.handled
    act.done += came.done
    act.asked += came.asked
    act.paced += came.done if act.per_minute is not None else 0
    act.refused += len(came.refused)
    room = REFUSALS_KEPT - len(act.refusals)
    act.refusals = [*act.refusals, *([job_id, *kept(why)] for job_id, why in sorted(came.refused.items())[:room])]
    act.stepped_at = Clock()
    act.state = BulkAct.State.RUNNING
    if act.after >= act.upto:
        act.state, act.finished_at = BulkAct.State.DONE, Clock()


def _batch(act: Any, came: Came, size: int, until: float) -> int:
    """Act upon the next jobs, of some thousand ids at most; return the id up to which they were gone through.

    Those one by one are acted upon at the beginning of a step only: one may have to wait for whoever holds its row, and
    nobody is to wait for the others meanwhile.
    """
    high = int(min(act.after + SPAN, act.upto))
    rows = meant_by(act)
    ids = list(rows.filter(pk__lte=high).order_by("pk").values_list("pk", flat=True)[:size])
    if not ids:
        return high
    free, held = _free(act, rows.filter(pk__in=ids))
    came_to = ids[-1] if len(ids) == size else high
    alone = sorted({*ids} - {*free} - {*held})
    if alone:
        came.is_full = True
        if came.done or (free and free[0] < alone[0]):
            came_to = alone[0] - 1
        else:
            came_to = _one_by_one(act, came, alone, until, free[0] - 1 if free else came_to)
    _at_once(act, came, [job_id for job_id in free if job_id <= came_to])
    came.refused |= {job_id: why for job_id, why in held.items() if job_id <= came_to}
    return came_to


def _one_by_one(act: Any, came: Came, ids: list[int], until: float, upto: int) -> int:
    """Act upon jobs by themselves; return the id up to which they were gone through, at most the one given."""
    for job_id in ids:
        if job_id > upto:
            break
        if time.monotonic() >= until:
            return job_id - 1
        _one(act, came, job_id)
    return upto


def _free(act: Any, rows: JobQuerySet) -> tuple[list[int], dict[int, str]]:
    """Lock those of the jobs of which nobody else holds the row; return those that one statement can act upon, and what
    is said of those that are kept as they are.

    Left for one by one: what runs, what would take back a key that it gave up, and a history that is no list.
    """
    window = timedelta(seconds=conf().idempotency_window)
    holds = Q(idempotency_key__isnull=False, finished_at__gt=Now() - window)
    asked = rows.annotate(
        holds_key=Case(When(holds, then=Value(True)), default=Value(False), output_field=BooleanField()),
        given_up=KeyTextTransform("key", "meta"),
        kind=operate_many.JsonKind(F("history")),
    )
    locked = asked.order_by("pk").select_for_update(skip_locked=True)
    free: list[int] = []
    held: dict[int, str] = {}
    takes_no_key = act.act == BulkAct.Act.CANCEL
    writes_history = act.act in (BulkAct.Act.REQUEUE, BulkAct.Act.CANCEL)
    for pk, status, key, holds_key, given_up, kind in locked.values_list(
        "pk", "status", "idempotency_key", "holds_key", "given_up", "kind"
    ):
        if act.act == BulkAct.Act.DELETE and holds_key and not act.with_keys:
            held[pk] = _(
                "Job %(id)d has the idempotency key %(key)r and finished within IDEMPOTENCY_WINDOW: without it the same "
                "enqueue would run again.",
                id=pk, key=key,
            )  # fmt: skip
        elif status == Job.Status.RUNNING:
            continue
        elif not writes_history or (kind == "array" and (takes_no_key or key is not None or given_up is None)):
            free.append(pk)
    return free, held


def _at_once(act: Any, came: Came, ids: list[int]) -> None:
    """Act upon jobs by one statement; one by one if a row is in the way, to find out which."""
    if not ids:
        return
    alias = act._state.db
    try:
        with transaction.atomic(using=alias):
            _all(act, Job.objects.using(alias).filter(pk__in=ids))
    except DatabaseError as error:
        if not is_of_a_row(error):
            raise
        for job_id in ids:
            _one(act, came, job_id)
    else:
        came.done += len(ids)


def _all(act: BulkAct, rows: JobQuerySet) -> None:
    match act.act:
        case BulkAct.Act.REQUEUE:
            operate_many.requeue(rows, seen.said(act.by, act.why))
        case BulkAct.Act.CANCEL:
            operate_many.cancel(rows, seen.said(act.by, act.why))
        case BulkAct.Act.MOVE:
            operate_many.move(rows, act.queue, seen.said(act.by, act.why))
        case BulkAct.Act.DELETE:
            rows.delete()


def _one(act: Any, came: Came, job_id: int) -> None:
    """Act upon a job by itself, and note what came of it, or why nothing did."""
    among = states(act.act, Sought.from_json(act.sought))
    try:
        with engine(act._state.db).acting():
            match act.act:
                case BulkAct.Act.REQUEUE:
                    operate.requeue(job_id, why=act.why, by=act.by, states=among)
                case BulkAct.Act.CANCEL:
                    came.asked += operate.cancel(job_id, why=act.why, by=act.by, states=among) == "asked"
                case _:
                    _delete_or_move(act, job_id, among)
    except (StateConflict, JobDoesNotExist) as error:
        came.refused[job_id] = of(error)
    except DatabaseError as error:  # as by a trigger of the project's
        if not is_of_a_row(error):
            raise
        came.refused[job_id] = f"Job {job_id}: {reason(error)}"
    else:
        came.done += 1


def _delete_or_move(act: Any, job_id: int, among: Iterable[str]) -> None:
    """Wait for whoever holds the row, and look again."""
    row = Job.objects.using(act._state.db).filter(pk=job_id)
    found = row.select_for_update().only("status").first()
    if found is None:
        raise JobDoesNotExist(_("There is no job %d.", job_id))
    if found.status not in among:
        words = {"id": job_id, "state": _(found.status)}
        raise StateConflict(_("Job %(id)d is %(state)s by now; what runs is never deleted or moved.", **words))
    _all(act, row)
