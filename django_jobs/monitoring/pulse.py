"""Whether the jobs are run, in few questions, for whoever asks every second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError

from django_jobs.conf import conf
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.bounded import TooSlow, bounded
from django_jobs.engines.depths import depths
from django_jobs.models import Pause, Worker
from django_jobs.models.worker import unserved
from django_jobs.monitoring.check import Thresholds

SECONDS = 2.0
AWAY = "the jobs' database does not answer"


def pulse(queues: Sequence[str] | None = None) -> dict[str, Any]:
    """Return whether all is well with these queues, or with all, and if not why; the database's own words are left out."""
    try:
        with bounded(jobs_alias(), SECONDS):
            return _pulse(jobs_alias(), queues)
    except (DatabaseError, InterfaceError, TooSlow):
        return {"ok": False, "problems": [AWAY]}


def _pulse(alias: str, queues: Sequence[str] | None) -> dict[str, Any]:
    limit = Thresholds.of(conf()).age_critical or 0.0
    live = Worker.objects.using(alias).live().only("asked", "queues")
    claiming = [worker for worker in live if worker.claims and worker.serves_any(queues)]
    paused = Pause.objects.using(alias).names(Pause.Kind.QUEUE)
    due = [
        found
        for found in depths(engine(alias), 1).queues
        if found.due and found.queue not in paused and (queues is None or found.queue in queues)
    ]
    problems = [] if claiming else ["no live worker that claims jobs"]
    alone = unserved([found.queue for found in due], claiming) if claiming else []
    for found in due:
        if found.queue in alone:
            problems.append(f"no live worker serves the queue {found.queue}, where jobs are due")
        if (found.oldest or 0.0) > limit:
            problems.append(f"the oldest due job of the queue {found.queue} waits for more than {limit:g} s")
    return {
        "ok": not problems,
        "problems": problems,
        "live_workers": len(claiming),
        "oldest_due_seconds": round(max((found.oldest or 0.0 for found in due), default=0.0), 3),
    }
