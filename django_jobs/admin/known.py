"""What a list offers to be narrowed to and shows beside its rows, without looking through the table of jobs: in one statement."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connections
from django.http import HttpRequest

from django_jobs.engines import jobs_alias

# So many of each are offered; others are found by their address.
LANES_SHOWN = 200
SCHEDULES_SHOWN = 50


@dataclass(slots=True)
class Known:
    """`now` is the database's. `lanes`: the queues and priorities in which jobs wait. `served` and `types` are of workers,
    `paused` kinds and names.
    """

    now: datetime | None = None
    lanes: list[tuple[str, int]] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    workers: list[tuple[str, str]] = field(default_factory=list)
    served: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    paused: set[tuple[str, str]] = field(default_factory=set)


_KNOWN = """
WITH RECURSIVE waiting (queue, priority, number) AS (
    -- From each lane to the next by probes of the claim's index.
    SELECT * FROM (SELECT CAST(queue AS text), priority, 1 FROM django_jobs_job WHERE status = 'ready' AND parked IS NULL
                    ORDER BY queue, priority DESC LIMIT 1) first
     UNION ALL
    SELECT CASE WHEN {lower} IS NOT NULL THEN queue ELSE {queue} END,
           coalesce({lower}, (SELECT max(priority) FROM django_jobs_job
                               WHERE status = 'ready' AND parked IS NULL AND queue = {queue})),
           number + 1
      FROM waiting
     WHERE queue IS NOT NULL AND number < %s
)
SELECT 'lane', queue, CAST(priority AS text), NULL, NULL FROM waiting WHERE queue IS NOT NULL
UNION ALL
SELECT * FROM (SELECT 'schedule', name, NULL, NULL, NULL FROM django_jobs_schedule ORDER BY name LIMIT %s) schedules
UNION ALL
SELECT * FROM (SELECT 'worker', CAST(id AS text), host || ':' || CAST(pid AS text), CAST(queues AS text), CAST(types AS text)
                 FROM django_jobs_worker ORDER BY host, pid, id) workers
UNION ALL
SELECT 'pause', kind, name, NULL, NULL FROM django_jobs_pause WHERE until IS NULL OR until > {now}
UNION ALL
SELECT 'now', {text}, NULL, NULL, NULL
"""
_LOWER = (
    "(SELECT max(j.priority) FROM django_jobs_job j WHERE j.status = 'ready' AND j.parked IS NULL "
    "AND j.queue = waiting.queue AND j.priority < waiting.priority)"
)
_NEXT = "(SELECT min(j.queue) FROM django_jobs_job j WHERE j.status = 'ready' AND j.parked IS NULL AND j.queue > waiting.queue)"
_NOW = {"postgresql": "statement_timestamp()", "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')"}
_TEXT = {
    "postgresql": """to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
    "sqlite": "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')",
}


def known(request: HttpRequest | None = None) -> Known:
    """Return what is known; of a request, ask once."""
    found: Known | None = getattr(request, "jobs_known", None)
    if found is None:
        found = _ask()
        if request is not None:
            request.jobs_known = found  # type: ignore[attr-defined]
    return found


def _ask() -> Known:
    connection = connections[jobs_alias()]
    found = Known()
    with connection.cursor() as cursor:
        question = _KNOWN.format(lower=_LOWER, queue=_NEXT, now=_NOW[connection.vendor], text=_TEXT[connection.vendor])
        cursor.execute(question, [LANES_SHOWN, SCHEDULES_SHOWN])
        for kind, first, second, queues, types in cursor.fetchall():
            match kind:
                case "lane":
                    found.lanes.append((first, int(second)))
                case "schedule":
                    found.schedules.append(first)
                case "now":
                    found.now = datetime.fromisoformat(first)
                case "pause":
                    found.paused.add((first, second))
                case _:
                    found.workers.append((first, second))
                    found.served.update(json.loads(queues or "null") or [])
                    found.types.update(json.loads(types or "null") or [])
    return found
