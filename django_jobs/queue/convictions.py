"""Jobs that were seen to kill their process when they ran alone, or to use up its memory; what follows for their type."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django_jobs import log, pauses
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import DIED, OUT_OF_MEMORY
from django_jobs.models import Job, Pause
from django_jobs.models.clock import Clock

# So many of one type within so long, by the database's clock, pause it: a bad deploy costs no more processes.
MOST_OF_A_TYPE = 3
WITHIN = timedelta(minutes=10)
BY = "django_jobs"
MOST_READ = 100
MOST_NAMED = 10


def review(engine: Engine, ids: Collection[int]) -> None:
    """Pause the types of those of these jobs that were convicted, where that has happened too often of late.

    What was convicted before is only counted: a type that a person has resumed stays so until the next one.
    """
    if not ids:
        return
    for name in sorted({job.type for job in _convicted(engine, pk__in=ids)}):
        found = sorted(job.pk for job in _convicted(engine, type=name))
        paused = Pause.objects.using(engine.alias).in_force().filter(kind=Pause.Kind.TYPE, name=name)
        if len(found) >= MOST_OF_A_TYPE and not paused.exists():
            pauses.pause(type=name, why=_why(found), by=BY)
            log.type_paused(name, found, _minutes())


def _convicted(engine: Engine, **conditions: Any) -> list[Job]:
    recent = Job.objects.using(engine.alias).filter(status=Job.Status.DEAD, finished_at__gt=Clock() - WITHIN)
    fields = ("type", "suspect", "token", "history")
    found = recent.filter(suspect=True, **conditions).order_by("-finished_at").only(*fields)[:MOST_READ]
    return [job for job in found if is_convicted(job)]


def is_convicted(job: Job) -> bool:
    """Tell whether a dead job ended by a death of its own process, or for want of memory, not by too many losses."""
    last = job.history[-1] if job.history else None
    return last is not None and job.suspect and last["run"] == job.token and last["cause"] in (DIED, OUT_OF_MEMORY)


def _minutes() -> int:
    return WITHIN // timedelta(minutes=1)


def _why(ids: list[int]) -> str:
    said = ", ".join(map(str, ids[:MOST_NAMED])) + (", ..." if len(ids) > MOST_NAMED else "")
    return f"{len(ids)} jobs of it killed their process within {_minutes()} minutes: jobs {said}"
