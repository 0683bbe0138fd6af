"""Storing how runs ended, one statement for each part of a batch, and telling what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

from django_jobs import log, notify
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import RELEASED, STOPPED, TOO_LATE
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.queue import told
from django_jobs.workers.seats import Region

LOST = "lost lease"
# How a claim ends whose function was not called.
NO_RUN = (RELEASED, TOO_LATE)
ASKED = "a person asked for it while it ran"
# What a statement stores at most, so that it does not run into its time-out: results may be a MiB each.
PART_CHARACTERS = 2_000_000


class Ended(NamedTuple):
    """A run that ended, in its seat, or a claim that goes back unstarted. `seconds` is how long it ran."""

    seat: int
    claimed: Claimed
    outcome: Done | Settlement
    seconds: float
    bare: bool = False


def parts(batch: Sequence[Ended]) -> list[list[Ended]]:
    """Part a batch by statement, so that each part is stored as a whole or not at all, and in time."""
    found: list[list[Ended]] = []
    for kind in (Done, Settlement):
        size = PART_CHARACTERS
        for item in batch:
            if not isinstance(item.outcome, kind):
                continue
            if size >= PART_CHARACTERS:
                found.append([])
                size = 0
            found[-1].append(item)
            size += characters(item)
    return found


def characters(item: Ended) -> int:
    """Return how much text an outcome has to store."""
    return len((item.outcome.result if isinstance(item.outcome, Done) else item.outcome.error) or "")


def without_texts(item: Ended) -> Ended:
    bare = Settlement(
        run=item.claimed.run,
        status="failed",
        counts="end",
        cause="outcome could not be stored",
        error="The outcome of this run could not be stored.",
    )
    return item._replace(outcome=bare, bare=True)


def store(engine: Engine, part: Sequence[Ended], max_uncounted: int) -> dict[int, str]:
    """Store a part of one kind; return each job's status by id, LOST for those that are no longer their run's.

    It may be repeated after a lost answer: what it finds ended by itself is no lost lease.
    """
    if isinstance(part[0].outcome, Done):
        statuses = engine.complete([cast("Done", item.outcome) for item in part])
    else:
        settlements = [cast("Settlement", item.outcome) for item in part]
        statuses = engine.settle(settlements, max_uncounted)
        notify.ready_again(engine, settlements, statuses)
    refused = [item for item in part if item.claimed.id not in statuses]
    return statuses | _refused(engine, refused) if refused else statuses


def _refused(engine: Engine, refused: Sequence[Ended]) -> dict[int, str]:
    written = engine.ended_by([item.claimed.run for item in refused])
    return {item.claimed.id: _status(item, written.get(item.claimed.id, LOST)) for item in refused}


def _status(item: Ended, found: str) -> str:
    # A job that is done may have been requeued since.
    return "done" if isinstance(item.outcome, Done) and found not in (LOST, "cancelled") else found


def account(region: Region, part: Sequence[Ended], statuses: dict[int, str]) -> None:
    """Count and log how the runs of a stored part ended, and tell the project's receivers."""
    _count_and_log(region, part, statuses)
    if told.ends_are_heard():
        _tell(region, part, statuses)


def _count_and_log(region: Region, part: Sequence[Ended], statuses: dict[int, str]) -> None:
    if isinstance(part[0].outcome, Done):
        done = sum(statuses[item.claimed.id] == "done" for item in part)
        region.count("done", done)
        if done == len(part) and not log.logger.isEnabledFor(logging.DEBUG):
            return
    for item in part:
        _account_one(region, item, statuses[item.claimed.id])


def _account_one(region: Region, item: Ended, status: str) -> None:
    outcome = item.outcome
    if isinstance(outcome, Settlement) and outcome.cause == RELEASED:
        region.count("released")  # whoever has the job now, nothing was run
    elif status == LOST:
        region.count("lost_leases")
        log.lost_lease(item.claimed.run)
    elif isinstance(outcome, Done) and status == "done":
        log.job_done(item.claimed, item.seconds)
    elif isinstance(outcome, Done):
        region.count(status)
        log.job_settled(item.claimed, status, status, ASKED, None)
    elif status == "done":
        # An atomic run whose COMMIT was made, and got no answer.
        region.count("done")
        log.job_done_unheard(item.claimed, item.seconds)
    else:
        stopped = outcome.cause == STOPPED
        region.count("stopped" if stopped else "retried" if status == "ready" else status)
        log.job_settled(item.claimed, status, outcome.cause, _said(outcome), outcome.delay, outcome.exception)


def _said(outcome: Settlement) -> str:
    return str(json.loads(outcome.entry)["error"] if outcome.entry else outcome.error or "")[:300]


def _tell(region: Region, part: Sequence[Ended], statuses: dict[int, str]) -> None:
    for item in part:
        status = statuses[item.claimed.id]
        if status != LOST and not (isinstance(item.outcome, Settlement) and item.outcome.cause in NO_RUN):
            told.post(partial(told.ended, _end(item, status)))
            region.tick_writes()


def _end(item: Ended, status: str) -> told.End:
    claimed, outcome = item.claimed, item.outcome
    cause = error = ""
    if isinstance(outcome, Done) and status != "done":
        cause, error = status, ASKED
    elif isinstance(outcome, Settlement) and status != "done":
        cause, error = outcome.cause, _said(outcome)
    return told.End(
        job_id=claimed.id,
        job_type=claimed.type,
        queue=claimed.queue,
        attempt=claimed.attempts + 1,
        run=claimed.token,
        status=status,
        cause=cause,
        error=error,
        seconds=item.seconds,
    )
