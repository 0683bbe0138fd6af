"""What a worker process has counted of what ended, by minute, queue and type; see `models.Stat`."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime

from django_jobs.engines.base import Engine
from django_jobs.engines.causes import STOPPED
from django_jobs.engines.values import Settlement
from django_jobs.models import Stat
from django_jobs.models.clock import for_row
from django_jobs.models.stat import CLASSES, COUNTERS, FINAL, LAST_ATTEMPT
from django_jobs.workers.ended import LOST, Ended

# A row is written anew with everything that its minute has had so far.
STORE_SECONDS = 5.0
AGAIN_SECONDS = 0.5
# Runs that end together end within so many minutes of each other, by what they know of the database's clock.
KEPT_MINUTES = 3
_VALUES = (*COUNTERS, "run_seconds", "wait_seconds", "runs", "waits", "attempts")


class _Tally:
    __slots__ = ("attempts", "counts", "run_seconds", "runs", "wait_seconds", "waits")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.run_seconds = self.wait_seconds = 0.0
        self.runs = [0] * (len(CLASSES) + 1)
        self.waits = [0] * (len(CLASSES) + 1)
        self.attempts = [0] * LAST_ATTEMPT

    def add(self, item: Ended, counter: str) -> None:
        waited = max(item.claimed.waited, 0.0)
        self.counts[counter] += 1
        self.run_seconds += item.seconds
        self.wait_seconds += waited
        self.runs[bisect_left(CLASSES, item.seconds)] += 1
        self.waits[bisect_left(CLASSES, waited)] += 1
        if counter in FINAL:
            self.attempts[min(item.claimed.attempts, LAST_ATTEMPT - 1)] += 1


class Tallies:
    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._tallies: dict[tuple[int, str, str], _Tally] = {}
        self._changed: set[tuple[int, str, str]] = set()
        self._store_at = time.monotonic() + STORE_SECONDS
        # Of what is older nothing is kept: a row written anew would forget it.
        self._first_minute = 0

    def note(self, part: Sequence[Ended], statuses: dict[int, str]) -> None:
        """Count what was stored, each run in the minute in which it ended by the database's clock."""
        for item in part:
            counter = _counter(item, statuses[item.claimed.id])
            if counter is None:
                continue
            claimed = item.claimed
            minute = max(int((claimed.due + claimed.waited + item.seconds) // 60), self._first_minute)
            key = (minute, claimed.queue, claimed.type)
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = _Tally()
            tally.add(item, counter)
            if claimed.losses:
                tally.counts["repeats"] += 1
            self._changed.add(key)

    @property
    def due(self) -> bool:
        return bool(self._changed) and time.monotonic() >= self._store_at

    def store(self, engine: Engine) -> None:
        """Write the rows of all that changed; they are this process's own."""
        # If it fails, it is tried again soon: until then nobody knows whether an outage is over.
        self._store_at = time.monotonic() + AGAIN_SECONDS
        changed = sorted(self._changed)
        if not changed:
            return
        rows = [self._row(key, engine.alias) for key in changed]
        unique = ["minute", "seconds", "queue", "type", "incarnation"]
        Stat.objects.using(engine.alias).bulk_create(
            rows, update_conflicts=True, unique_fields=unique, update_fields=_VALUES
        )
        self._store_at = time.monotonic() + STORE_SECONDS
        self._changed.difference_update(changed)
        self._first_minute = max(self._first_minute, changed[-1][0] - KEPT_MINUTES)
        self._tallies = {key: tally for key, tally in self._tallies.items() if key[0] >= self._first_minute}

    def _row(self, key: tuple[int, str, str], alias: str) -> Stat:
        minute, queue, job_type = key
        tally = self._tallies[key]
        return Stat(
            minute=for_row(datetime.fromtimestamp(minute * 60, UTC), alias),
            queue=queue,
            type=job_type,
            incarnation=self._incarnation,
            run_seconds=round(tally.run_seconds, 3),
            wait_seconds=round(tally.wait_seconds, 3),
            runs=list(tally.runs),
            waits=list(tally.waits),
            attempts=list(tally.attempts),
            **tally.counts,
        )


def _counter(item: Ended, status: str) -> str | None:
    """Return what a run is counted as; None for a claim that went back without one."""
    outcome = item.outcome
    if isinstance(outcome, Settlement) and outcome.cause == "released":
        return None
    if status == LOST:
        return "lost_leases"
    if isinstance(outcome, Settlement) and outcome.cause == STOPPED:
        return "stopped"
    return "retried" if status == "ready" else status
