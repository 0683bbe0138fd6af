"""What the incident cost, by SQL once it is over, and by part of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg

WAITS = """
SELECT count(*), coalesce(percentile_cont(ARRAY[0.5, 0.95, 1.0]) WITHIN GROUP
       (ORDER BY extract(epoch FROM started_at - run_at)), ARRAY[0, 0, 0])::float8[]
  FROM django_jobs_job WHERE type = 'benchmarks.jobs.confirm' AND run_at >= %s AND run_at < %s AND started_at IS NOT NULL
"""
DONE = """
SELECT type, count(*) FROM django_jobs_job
 WHERE status = 'done' AND finished_at >= %s AND finished_at < %s GROUP BY type
"""
TOTALS = """
SELECT count(*), count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE status = 'failed'),
       count(*) FILTER (WHERE status NOT IN ('done', 'failed')),
       coalesce(sum((SELECT count(*) FROM jsonb_array_elements(history) AS line WHERE line ->> 'cause' = 'died')), 0)::bigint
  FROM django_jobs_job
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A span of the incident: seconds since the clock change."""

    name: str
    start: float
    end: float


def by_part(connection: psycopg.Connection, zero: datetime, parts: list[Part]) -> list[dict[str, Any]]:
    """Return of each part how fast each type was done, and how long confirmations waited that came in it."""
    found = []
    for part in parts:
        span = [zero + timedelta(seconds=part.start), zero + timedelta(seconds=part.end)]
        length = max(part.end - part.start, 0.001)
        done: dict[str, int] = dict(connection.execute(DONE, span).fetchall())
        row = connection.execute(WAITS, span).fetchone()
        assert row is not None
        found.append(
            {
                "part": part.name,
                "start": round(part.start, 1),
                "end": round(part.end, 1),
                "done_per_second": {
                    name: round(done.get(f"benchmarks.jobs.{name}", 0) / length, 1)
                    for name in ("confirm", "newsletter", "read_row", "report")
                },
                "confirmations": row[0],
                "wait_p50": round(row[1][0], 3),
                "wait_p95": round(row[1][1], 3),
                "wait_most": round(row[1][2], 3),
            }
        )
    return found


def totals(connection: psycopg.Connection) -> dict[str, int]:
    row = connection.execute(TOTALS).fetchone()
    assert row is not None
    names = ("jobs", "done", "failed", "not_ended", "runs_lost")
    return dict(zip(names, row, strict=True))


def markdown(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    total = result["totals"]
    lines = [
        f"{result['date']}, {result['host']}; {result['options']['processes']} processes with "
        f"{result['options']['threads']} threads, {result['options']['jobs']:,} newsletters of "
        f"{1000 * result['options']['work']:g} ms, {result['options']['schedules']} schedules, "
        f"{result['options']['rows']} rows of which {result['options']['poisoned']} are malformed, "
        f"{result['options']['rate']:g} confirmations a second.",
        "",
        "| part | seconds | confirmations a second | they waited: p50 | p95 | most | newsletters a second |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for part in result["parts"]:
        rates = part["done_per_second"]
        lines.append(
            f"| {part['part']} | {part['start']:g} to {part['end']:g} | {rates['confirm']:g} | {part['wait_p50']:.3f} s "
            f"| {part['wait_p95']:.3f} s | {part['wait_most']:.2f} s | {rates['newsletter']:g} |"
        )
    lines += [
        "",
        "| | |",
        "|---|--:|",
        f"| jobs | {total['jobs']:,} |",
        f"| done | {total['done']:,} |",
        f"| refused by the fixed code (`failed`) | {total['failed']} |",
        f"| **neither** | {total['not_ended']} |",
        f"| worker processes that died | {result['deaths']} |",
        f"| runs that were lost with them | {total['runs_lost']} |",
        f"| dead letters, at most | {result['most_dead']} |",
        f"| seconds until the type was paused by itself | {result['isolated_after']:g} |",
        f"| exit code of the workers at the deploy | {result['deploy_exit_code']} |",
        "",
    ]
    return "\n".join(lines)
