"""What worker processes run now, by the table of jobs: of all processes of a page in one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import ngettext

from django_jobs.admin import beside, figures, shown
from django_jobs.engines import jobs_alias
from django_jobs.models import Job, Worker

READ = 1_000
ON_LIST = 4
COLUMNS = ("pk", "type", "token", "locked_by", "last_started_at", "progress")


@dataclass(slots=True)
class Runs:
    """The jobs that one process holds, the one that started first above; no more than READ of all were read."""

    jobs: list[Any] = field(default_factory=list)
    capped: bool = False

    @property
    def number(self) -> str:
        return figures.capped(len(self.jobs), self.capped)

    def lines(self, clock: datetime) -> list[dict[str, Any]]:
        return [line(job, clock) for job in self.jobs]

    def summary(self, clock: datetime) -> str:
        """Return the first few for a cell of the list."""
        if not self.jobs:
            return shown.NOTHING
        rows = ((line["job"], line["type"], line["since"]) for line in Runs(self.jobs[:ON_LIST]).lines(clock))
        found = format_html_join("", "<li>{} {} <span class='quiet nowrap'>{}</span></li>", rows)
        if (more := len(self.jobs) - ON_LIST) > 0:
            text = ngettext("and %d more", "and %d more", more) % more
            found += format_html("<li class='quiet'>{}</li>", text)
        return format_html("<ul class='dj-runs'>{}</ul>", mark_safe(found))


def line(job: Job, clock: datetime) -> dict[str, Any]:
    """Return what is shown of a run; its progress is masked by `beside.with_progress`."""
    return {
        "job": shown.job_link(job.pk),
        "type": shown.name(job.type),
        "run": job.token,
        "since": shown.age(job.last_started_at, clock),
        "progress": shown.progress(job.progress),
    }


def runs_of(workers: Sequence[Worker]) -> dict[str, Runs]:
    """Return what each of these processes runs, by its incarnation."""
    found = {worker.pk: Runs() for worker in workers}
    if not found:
        return found
    held = reduce(or_, (Q(locked_by__startswith=f"{incarnation}:") for incarnation in found))
    jobs = Job.objects.using(jobs_alias()).running().filter(held).only(*COLUMNS)[:READ]
    for job in sorted(beside.with_progress(jobs), key=_started):
        found[str(job.locked_by).split(":")[0]].jobs.append(job)
    capped = sum(len(runs.jobs) for runs in found.values()) == READ
    for runs in found.values() if capped else ():
        runs.capped = True
    return found


def _started(job: Any) -> tuple[bool, Any, int]:
    at = job.last_started_at
    return (at is None, at.timestamp() if at else 0, job.pk)
