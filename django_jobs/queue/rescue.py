"""Taking back jobs whose run can no longer end by itself.

Nothing here waits for a row that somebody holds: it is left for the next try, and the other jobs go back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial

from django.db import InterfaceError, OperationalError, transaction

from django_jobs import log, notify, registry
from django_jobs.backoff import Backoff
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import DEADLINE, LEASE_RAN_OUT, RELEASED
from django_jobs.engines.values import Run, Settlement, released
from django_jobs.models import Job
from django_jobs.models.clock import database_now
from django_jobs.models.stat import FINAL
from django_jobs.queue import convictions, told
from django_jobs.queue.history import entry, late
from django_jobs.queue.stats import Counted

BATCH = 500


def lose(
    engine: Engine,
    runs: Sequence[tuple[Run, float]],
    *,
    cause: str,
    error: str,
    worker: str,
    witnessed: bool,
    max_uncounted: int,
    delay: float | None = None,
) -> bool:
    """Charge a loss to runs, each given with its seconds; the witnessed death of a suspect that ran alone convicts it.

    `delay`: seconds until they may run again, doubled with each loss in a row.

    Returns whether all could be taken back, as the functions below do.
    """
    settlements = [
        Settlement(
            run=run,
            status="ready",
            counts="loss",
            cause=cause,
            delay=delay,
            witnessed=witnessed,
            error=error,
            entry=entry(run.token, cause, error, worker, seconds),
        )
        for run, seconds in runs
    ]
    back = _settle_unlocked(engine, settlements, max_uncounted)
    if witnessed:
        convictions.review(engine, [run.id for run, _ in runs])
    return back


def cut(
    engine: Engine, runs: Sequence[tuple[Run, float]], cause: str, why: str, worker: str, max_uncounted: int
) -> bool:
    """Give back runs that ended by no doing of theirs: nothing is charged, and the history says so."""
    settlements = [
        released(run)._replace(cause=cause, entry=entry(run.token, cause, why, worker, seconds))
        for run, seconds in runs
    ]
    return _settle_unlocked(engine, settlements, max_uncounted)


def end_late(
    engine: Engine, runs: Sequence[tuple[Run, float]], worker: str, backoff: Backoff, max_uncounted: int
) -> bool:
    """Charge an attempt to runs that did not end at their deadline and whose process is dead."""
    if not runs:
        return True
    jobs = Job.objects.using(engine.alias).filter(pk__in=[run.id for run, _ in runs])
    rows = {row[0]: row[1:] for row in jobs.values_list("pk", "type", "attempts", "max_attempts", "timeout")}
    settlements = [_late(run, seconds, worker, backoff, *rows[run.id]) for run, seconds in runs if run.id in rows]
    return _settle_unlocked(engine, settlements, max_uncounted)


def _late(
    run: Run,
    seconds: float,
    worker: str,
    backoff: Backoff,
    type_name: str,
    attempts: int,
    max_attempts: int,
    timeout: float | None,
) -> Settlement:
    job_type = registry.find(type_name)
    own = job_type.backoff if job_type is not None else None
    is_last = attempts + 1 >= max_attempts
    error = f"{late(timeout)}, did not end, and was ended with its process."
    return Settlement(
        run=run,
        status="dead" if is_last else "ready",
        counts="attempt",
        cause=DEADLINE,
        delay=None if is_last else (own or backoff).delay(attempts + 1),
        error=error,
        entry=entry(run.token, DEADLINE, error, worker, seconds),
    )


def give_back(engine: Engine, runs: Sequence[Run], max_uncounted: int) -> bool:
    """Give back claims that were never started, or whose outcome was not stored."""
    return _settle_unlocked(engine, [released(run) for run in runs], max_uncounted)


def reap(engine: Engine, max_uncounted: int, why: str = "the lease ran out") -> int:
    """Take back one batch of jobs whose lease ran out; return how many could be."""
    with transaction.atomic(using=engine.alias):
        expired = engine.expired(BATCH)
        settlements = [
            Settlement(
                run=item.run,
                status="ready",
                counts="loss",
                cause=LEASE_RAN_OUT,
                error=f"The run was lost: {why}.",
                # No start is known of a row that was written by hand.
                entry=entry(item.run.token, LEASE_RAN_OUT, why, item.run.locked_by, item.seconds or 0.0),
            )
            for item in expired
        ]
        return len(_settle(engine, settlements, max_uncounted))


def locked(engine: Engine, ids: Collection[int]) -> set[int]:
    """Return those jobs whose rows somebody holds; the others are the caller's until its transaction ends, if it has one."""
    if not ids:
        return set()
    with transaction.atomic(using=engine.alias):
        jobs = Job.objects.using(engine.alias).filter(pk__in=ids)
        free = jobs.order_by("pk").select_for_update(skip_locked=True).values_list("pk", flat=True)
        return set(jobs.values_list("pk", flat=True)) - set(free)


def _settle_unlocked(engine: Engine, settlements: Sequence[Settlement], max_uncounted: int) -> bool:
    if not settlements:
        return True
    with transaction.atomic(using=engine.alias):
        held = locked(engine, [item.run.id for item in settlements])
        _settle(engine, [item for item in settlements if item.run.id not in held], max_uncounted)
    return not held


def _settle(engine: Engine, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
    """Settle all at once or, when one cannot be stored, each by itself; return each job's status."""
    if not settlements:
        return {}
    try:
        with transaction.atomic(using=engine.alias):
            statuses = engine.settle(settlements, max_uncounted)
    except (OperationalError, InterfaceError, OSError):
        raise
    except Exception:
        if len(settlements) == 1:
            log.loop_failed(f"Taking back job {settlements[0].run.id}")
            return {}
        statuses = {}
        for item in settlements:
            statuses |= _settle(engine, [item], max_uncounted)
        return statuses
    _count(engine, settlements, statuses)
    notify.ready_again(engine, settlements, statuses)
    if told.ends_are_heard():
        _tell(engine, settlements, statuses)
    for item in settlements:
        if item.run.id in statuses and item.counts == "loss":
            log.job_lost(item.run.id, statuses[item.run.id], item.cause, item.error or "")
        elif item.run.id in statuses and item.cause == DEADLINE:
            log.job_late(item.run.id, statuses[item.run.id], item.error or "")
    return statuses


def _count(engine: Engine, settlements: Sequence[Settlement], statuses: dict[int, str]) -> None:
    """Count leases that ran out, and jobs that ended here, in the transaction that takes them back."""
    told = [
        item
        for item in settlements
        if item.run.id in statuses and (item.cause == LEASE_RAN_OUT or statuses[item.run.id] in FINAL)
    ]
    if not told:
        return
    try:
        with transaction.atomic(using=engine.alias):
            _counted(engine, told, statuses).store(engine, database_now(engine.alias))
    except (OperationalError, InterfaceError, OSError):
        raise
    except Exception:  # no job waits for what is only counted
        log.loop_failed("Counting jobs that were taken back")


def _counted(engine: Engine, settlements: Sequence[Settlement], statuses: dict[int, str]) -> Counted:
    rows = _rows(engine, settlements)
    counted = Counted()
    for item in settlements:
        queue, job_type, attempt = rows[item.run.id]
        if item.cause == LEASE_RAN_OUT:
            counted.add(queue, job_type, "lease_expirations")
        if statuses[item.run.id] in FINAL:
            counted.end(queue, job_type, statuses[item.run.id], attempt)
    return counted


def _rows(engine: Engine, settlements: Sequence[Settlement]) -> dict[int, tuple[str, str, int]]:
    """Return the queue and the type of each job, and which attempt it was that has been taken back."""
    jobs = Job.objects.using(engine.alias).filter(pk__in=[item.run.id for item in settlements])
    found = {row[0]: row[1:] for row in jobs.values_list("pk", "queue", "type", "attempts")}
    counts = {item.run.id: item.counts for item in settlements}
    # Only what was an attempt of the job's own is in the row by now.
    return {pk: (queue, name, max(done + (counts[pk] != "attempt"), 1)) for pk, (queue, name, done) in found.items()}


def _tell(engine: Engine, settlements: Sequence[Settlement], statuses: dict[int, str]) -> None:
    """Tell the project's receivers, when that is committed, of the runs that were taken back; others were only claimed."""
    runs = [item for item in settlements if item.run.id in statuses and item.cause != RELEASED]
    rows = _rows(engine, runs) if runs else {}
    for item in runs:
        queue, job_type, attempt = rows[item.run.id]
        line = json.loads(item.entry or "{}")
        end = told.End(
            job_id=item.run.id,
            job_type=job_type,
            queue=queue,
            attempt=attempt,
            run=item.run.token,
            status=statuses[item.run.id],
            cause=item.cause,
            error=str(line.get("error", "")),
            seconds=float(line.get("seconds", 0.0)),
        )
        told.when_committed(engine.alias, partial(told.ended, end))
