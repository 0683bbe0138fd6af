"""Taking back jobs whose run can no longer end by itself."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from django_jobs import log
from django_jobs.engines.base import Engine, Run, Settlement, released
from django_jobs.workers.runner import entry

BATCH = 500


def lose(engine: Engine, runs: Sequence[tuple[Run, float]], how: str, worker: str, max_uncounted: int) -> None:
    """Charge a loss to the runs that a process died in; a second such death in a row ends the job as dead."""
    error = f"The worker process died: {how}."
    settlements = [
        Settlement(
            run=run,
            status="ready",
            counts="loss",
            cause="died",
            witnessed=True,
            error=error,
            entry=entry(run.token, "died", error, worker, seconds),
        )
        for run, seconds in runs
    ]
    _settle_losses(engine, settlements, max_uncounted)


def cut(engine: Engine, runs: Sequence[tuple[Run, float]], why: str, worker: str, max_uncounted: int) -> None:
    """Give back runs that we ended ourselves: nothing is charged, and the history says so."""
    settlements = [
        released(run)._replace(cause="stopped", entry=entry(run.token, "stopped", why, worker, seconds))
        for run, seconds in runs
    ]
    engine.settle(settlements, max_uncounted)


def give_back(engine: Engine, runs: Sequence[Run], max_uncounted: int) -> int:
    """Give back claims that were never started, or whose outcome was not stored; return how many were."""
    return len(engine.settle([released(run) for run in runs], max_uncounted)) if runs else 0


def reap(engine: Engine, max_uncounted: int, why: str = "the lease ran out") -> int:
    """Take back one batch of jobs whose lease ran out; return how many there were."""
    with transaction.atomic(using=engine.alias):
        expired = engine.expired(BATCH)
        settlements = [
            Settlement(
                run=item.run,
                status="ready",
                counts="loss",
                cause="lease ran out",
                error=f"The run was lost: {why}.",
                entry=entry(item.run.token, "lease ran out", f"{why}", item.run.locked_by, item.seconds),
            )
            for item in expired
        ]
        _settle_losses(engine, settlements, max_uncounted)
    return len(expired)


def _settle_losses(engine: Engine, settlements: list[Settlement], max_uncounted: int) -> None:
    if not settlements:
        return
    statuses = engine.settle(settlements, max_uncounted)
    for item in settlements:
        if item.run.id in statuses:
            log.job_lost(item.run.id, statuses[item.run.id], item.cause, item.error or "")
