from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Q, Window
from django.utils.translation import gettext as _

from django_jobs.admin import beside, figures, shown
from django_jobs.admin.overview.asked import Asked
from django_jobs.admin.worker_runs import COLUMNS, line
from django_jobs.models import Job, Worker
from django_jobs.models.worker import beats

WORKERS_SHOWN, RUNS_SHOWN, RUNS_OF_ONE = 50, 500, 20


@dataclass(frozen=True, slots=True)
class Found:
    """The first workers, the live ones before the others, each with the time as `clock`; and how many there are.

    `working`: how many live ones were not asked to claim nothing more.
    """

    rows: list[Any]
    total: int
    live: int
    working: int


def read(asked: Asked) -> Found:
    live = beats()
    rows: Any = (
        Worker.objects.using(asked.alias)
        .marked()
        .annotate(
            all_of_them=Window(Count("pk")),
            all_live=Window(Count("pk", filter=live)),
            all_working=Window(Count("pk", filter=live & Q(asked=Worker.Asked.NOTHING))),
        )
    )
    found = list(rows.defer("types", "stacks").order_by("-live", "host", "pid")[:WORKERS_SHOWN])
    if not found:
        return Found([], 0, 0, 0)
    return Found(found, found[0].all_of_them, found[0].all_live, found[0].all_working)


def running(asked: Asked) -> list[Job]:
    """Return what runs, that for the longest first, no more than can be shown."""
    jobs = Job.objects.using(asked.alias).running().order_by(F("last_started_at").asc(nulls_last=True))
    return beside.with_progress(jobs.only(*COLUMNS)[:RUNS_SHOWN])


def lines(asked: Asked) -> dict[str, Any]:
    found: Found = asked.found["workers"]
    runs = asked.found.get("running")
    by_worker: dict[str, list[Job]] = defaultdict(list)
    for job in runs or ():
        by_worker[(job.locked_by or "").partition(":")[0]].append(job)
    return {
        "lines": [_line(worker, by_worker[worker.pk]) for worker in found.rows],
        "more": found.total - len(found.rows),
        "sees_runs": runs is not None,
        "is_cut": len(runs or ()) >= RUNS_SHOWN,
        "runs_shown": figures.number(RUNS_SHOWN),
    }


def _line(worker: Any, runs: list[Job]) -> dict[str, Any]:
    return {
        "process": shown.worker_link(worker),
        "state": shown.worker_badge(worker),
        "queues": shown.queues(worker),
        "busy": _("%(busy)s of %(threads)s") % {"busy": len(runs), "threads": worker.threads},
        "heartbeat": shown.age(worker.heartbeat_at, worker.clock),
        "runs": [line(job, worker.clock) for job in runs[:RUNS_OF_ONE]],
        "more": max(0, len(runs) - RUNS_OF_ONE),
    }
