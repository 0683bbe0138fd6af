from __future__ import annotations

import socket

from django_jobs.engines.base import Engine
from django_jobs.models import Worker as WorkerRow
from django_jobs.workers.plan import Plan


def register(engine: Engine, plan: Plan, incarnation: str, pid: int) -> None:
    """Store the row of a worker process, unless it is there."""
    row = WorkerRow(
        id=incarnation,
        host=socket.gethostname(),
        pid=pid,
        supervisor_pid=plan.supervisor_pid,
        queues=None if plan.queues is None else list(plan.queues),
        types=list(plan.types),
        threads=plan.settings.threads,
    )
    WorkerRow.objects.using(engine.alias).bulk_create([row], ignore_conflicts=True)
