"""What lists of jobs show beside the columns that they read: whether a pause holds a job, and the beginning of its call.

What of it is secret is masked, and so it is in the error that is shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Left

from django_jobs import redact
from django_jobs.admin import shown
from django_jobs.engines import jobs_alias
from django_jobs.models import Job, Pause

# Of the stored text, which names its parts: about 60 of the call are shown, and an error may say a secret from further on.
PAYLOAD_READ = 5_000
BEGINNING = Left(Cast("payload", TextField()), PAYLOAD_READ)


def with_held(jobs: Iterable[Any], pauses: set[tuple[str, str]] | None = None) -> list[Any]:
    """Return the jobs, each with `held`: whether its queue or its type is paused now, by the database's clock.

    The pauses are few; they are read if a job waits and they are not given, as kinds and names. The jobs behind them are not.
    """
    found = list(jobs)
    if pauses is None:
        waits = any(job.status == Job.Status.READY for job in found)
        in_force = Pause.objects.using(jobs_alias()).in_force()
        pauses = set(in_force.values_list("kind", "name")) if waits else set()
    for job in found:
        job.held = not pauses.isdisjoint({(Pause.Kind.QUEUE, job.queue), (Pause.Kind.TYPE, job.type)})
    return found


def with_progress(jobs: Iterable[Any]) -> list[Any]:
    """Return the jobs, each with its progress masked. Only of those that have any are the arguments looked at."""
    found = list(jobs)
    for job in with_calls(job for job in found if job.progress):
        job.progress = redact.texts(job.progress, job.secrets)
    return found


def with_calls(jobs: Iterable[Any]) -> list[Any]:
    """Return the jobs, each with `call`: its arguments in short. The database cuts them: each may have a MiB.

    Asked for by id unless they have it as `beginning`: a list that sorts would cut those of all its rows. `secrets` are what
    was found there, which an `error_end` then shows no longer.
    """
    found = list(jobs)
    apart = [job.pk for job in found if not hasattr(job, "beginning")]
    model = type(found[0]) if found else Job
    rows = model._default_manager.using(jobs_alias()).filter(pk__in=apart)
    beginnings = dict(rows.values_list("pk", BEGINNING)) if apart else {}
    for job in found:
        beginning = beginnings.get(job.pk, getattr(job, "beginning", "")) or ""
        job.call = shown.call(redact.call_text(beginning, job.type))
        job.secrets = redact.secrets(job.type, beginning)
        if hasattr(job, "error_end"):
            job.error_end = redact.text(job.error_end, job.secrets)
    return found
