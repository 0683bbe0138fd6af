"""What a person asks of worker processes. Their supervisor hears it with their next heartbeat."""

from __future__ import annotations

from typing import Any

from django_jobs.engines import jobs_alias
from django_jobs.models import Worker
from django_jobs.models.clock import Clock


def quiet(incarnation: str) -> bool:
    """Have a worker process claim nothing more; what runs in it goes on, and what it has not started goes back.

    Return whether somebody hears it, here and below: not when it has ended, or has been silent for a lease.
    """
    return _ask(incarnation, asked=Worker.Asked.QUIET)


def work(incarnation: str) -> bool:
    """Have a quiet worker process claim again."""
    return _ask(incarnation, asked=Worker.Asked.NOTHING)


def dump(incarnation: str) -> bool:
    """Have a worker process write the stacks of its threads into its row."""
    return _ask(incarnation, stacks_asked_at=Clock())


def stop(incarnation: str) -> int:
    """Have the `runworkers` of a worker process stop in order, as after TERM; return how many processes that ends."""
    live = Worker.objects.using(jobs_alias()).live()
    of_it = live.filter(pk=incarnation).exclude(supervisor="")
    supervisors = list(of_it.values_list("supervisor", flat=True))
    number: int = live.filter(supervisor__in=supervisors).update(asked=Worker.Asked.STOP)
    return number


def _ask(incarnation: str, **asked: Any) -> bool:
    # One that stops is not asked for anything else but its stacks.
    rows = Worker.objects.using(jobs_alias()).live().filter(pk=incarnation)
    if "asked" in asked:
        rows = rows.exclude(asked=Worker.Asked.STOP)
    return bool(rows.update(**asked))
