"""How SQLite stores that a run ended in any way but done: settle.sql, a row at a time."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django_jobs.engines.causes import HISTORY_LIMIT
from django_jobs.engines.sqlite_parts import LATER, NOW
from django_jobs.engines.values import LAST_ALONE, Settlement


def with_line(cursor: Any, history: list[Any], line: dict[str, Any]) -> list[Any]:
    cursor.execute("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
    lines = history.copy()
    if len(lines) >= HISTORY_LIMIT:
        del lines[1]
    lines.append({**line, "at": cursor.fetchone()[0]})
    return lines


class Before(NamedTuple):
    """What a job had behind it before a run of it ended; `history` is JSON text."""

    losses: int
    suspect: int
    history: str
    cancelled: int


def _is_suspect(item: Settlement, before: Before, max_uncounted: int) -> bool:
    if item.counts != "loss":
        return bool(before.suspect) and item.counts == "nothing"
    again = item.suspicious and before.losses > 0
    return bool(before.suspect) or item.witnessed or again or before.losses + 1 >= max_uncounted - LAST_ALONE


def settle_one(cursor: Any, item: Settlement, before: Before, max_uncounted: int) -> str:
    losses = before.losses
    status = item.status
    convicted = item.witnessed and before.suspect and losses > 0
    if item.counts == "loss" and (convicted or losses + 1 >= max_uncounted):
        status = "dead"
    if before.cancelled:
        status = "cancelled"
    suspect = _is_suspect(item, before, max_uncounted)
    history = json.loads(before.history)
    error = item.error
    if item.counts == "loss" and convicted:
        error = f"{error or ''} It ran alone, and was lost {losses + 1} times in a row."
    elif item.counts == "loss" and losses + 1 >= max_uncounted:
        error = f"Lost {losses + 1} times in a row, never seen to end. {error or ''}"
    if item.entry is not None:
        history = with_line(cursor, history, json.loads(item.entry))
    cursor.execute(
        "UPDATE django_jobs_job SET status = %s, "
        f"run_at = CASE WHEN %s IS NULL THEN run_at ELSE {LATER.format('%s')} END, "
        "attempts = attempts + %s, losses = %s, suspect = %s, parked = %s, last_error = COALESCE(%s, last_error), history = %s, "
        f"locked_by = NULL, locked_until = NULL, finished_at = CASE WHEN %s = 'ready' THEN NULL ELSE {NOW} END, "
        "idempotency_key = CASE WHEN %s = 'ready' OR key_holds = 'window' THEN idempotency_key END WHERE id = %s",
        [
            status,
            item.delay,
            (item.delay or 0.0) * (2 ** min(losses, 3) if item.counts == "loss" else 1),
            int(item.counts == "attempt"),
            {"loss": losses + 1, "nothing": losses}.get(item.counts, 0),
            suspect,
            "suspect" if suspect and status == "ready" else None,
            error,
            json.dumps(history),
            status,
            status,
            item.run.id,
        ],
    )
    return status
