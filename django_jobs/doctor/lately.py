"""What went wrong in the last minute and hour, by what the workers have counted."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.doctor.findings import Finding
from django_jobs.engines.base import Engine
from django_jobs.measures.rates import SPANS, rates
from django_jobs.models.clock import database_now


def lately(engine: Engine) -> Iterator[Finding]:
    found = rates(engine.alias, SPANS["1h"], database_now(engine.alias))
    if found.many_failed:
        done, failed = found.last_minute
        yield Finding(
            "many_failures",
            f"Of the {done + failed} jobs that ended in the last whole minute {failed} failed.",
            "The admin's page of dead letters has them by type and error. While the cause is there, "
            "`jobs pause --type T` has no more of them fail.",
        )
    if found.repeats_in_hour:
        yield Finding(
            "lost_runs",
            f"In the last hour {found.repeats_in_hour} runs ended that had begun anew: those before were lost, as when a worker "
            "process dies.",
            "The log of `runworkers` says which processes ended and why: killed by hand, out of memory, a host that went away.",
            is_note=True,
        )


CHECKS = (lately,)
