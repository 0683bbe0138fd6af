from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import Any

from django_jobs.engines.base import Engine
from django_jobs.models import Worker as WorkerRow
from django_jobs.workers.plan import Plan


def register(engine: Engine, plan: Plan, incarnation: str, pid: int) -> None:
    """Store the row of a worker process, unless it is there.

    Not by the ORM: a process that has used it once has some 1 MiB less that it shares with others.
    """
    row: dict[str, str | int | None] = {
        "id": incarnation,
        "host": socket.gethostname(),
        "pid": pid,
        "supervisor_pid": plan.supervisor_pid,
        "supervisor": plan.supervisor,
        "queues": None if plan.queues is None else json.dumps(plan.queues),
        "types": json.dumps(plan.types),
        "threads": plan.settings.threads,
    }
    quote = engine.connection.ops.quote_name
    columns, places = ", ".join(map(quote, row)), ", ".join(["%s"] * len(row))
    with engine.connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(WorkerRow._meta.db_table)} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING",
            list(row.values()),
        )


def leave(engine: Engine, incarnation: str) -> None:
    """Delete the row of a worker process that ends."""
    WorkerRow.objects.using(engine.alias).filter(pk=incarnation).delete()
    engine.connection.close()


def forget_silent(engine: Engine, silent: timedelta) -> None:
    """Delete, on PostgreSQL, the rows of worker processes that have been silent for so long. Not by the ORM, as above."""
    given: list[Any] = [silent]
    with engine.connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_jobs_worker WHERE heartbeat_at < STATEMENT_TIMESTAMP() - %s", given)
