"""Which of the jobs on a page are held by a pause. The pauses are few and are read; the jobs behind them are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_jobs.engines import jobs_alias
from django_jobs.models import Pause


def marked(jobs: Iterable[Any]) -> list[Any]:
    """Return the jobs, each with `held`: whether its queue or its type is paused now, by the database's clock."""
    pauses = set(Pause.objects.using(jobs_alias()).in_force().values_list("kind", "name"))
    found = list(jobs)
    for job in found:
        job.held = not pauses.isdisjoint({(Pause.Kind.QUEUE, job.queue), (Pause.Kind.TYPE, job.type)})
    return found
