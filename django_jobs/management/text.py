"""The lines in which the commands show what `report` says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_jobs.doctor.findings import Finding
from django_jobs.queue.archive import Came

SAID_LIMIT = 60
QUEUE_HEADS = (
    "queue",
    "due",
    "oldest due s",
    "later",
    "retries among these",
    "parked",
    "suspects among these",
    "running",
    "done/min",
    "failed/min",
)
QUEUE_NAMES = (
    "queue",
    "due",
    "oldest_due_seconds",
    "later",
    "retries",
    "parked",
    "suspects",
    "running",
    "done_a_minute",
    "failed_a_minute",
)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table; columns whose values are numbers are aligned right."""
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [all(_is_number(row[index]) for row in rows) for index in range(len(heads))]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.rjust(width) if is_right else value.ljust(width)
            for value, width, is_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(heads), *(line(row) for row in cells)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | None) or (isinstance(value, str) and value.rstrip("+").isdecimal())


def archived(came: Came, dry_run: bool) -> list[str]:
    if came.elsewhere:
        return ["Another process is at the archive; nothing was done."]
    done = "to be " if dry_run else ""
    lines = [f"{came.archived} jobs {done}archived, {came.deleted} {done}deleted."]
    if came.dropped or came.forgotten:
        rows = f", {came.forgotten} archived jobs {done}deleted" if came.forgotten else ""
        lines.append(f"Partitions {done}dropped: {', '.join(came.dropped) or 'none'}{rows}.")
    if came.refused:
        lines.append(
            f"No partition of the archive can be made ({came.refused}): jobs stay for KEEP_DONE and ARCHIVE_FOR, and are "
            "deleted then. See docs/retention.md."
        )
    return lines


def status(state: dict[str, Any]) -> list[str]:
    lines = [state["database"]]
    if state["cannot_be_written"]:
        lines.append(f"It cannot be written, so no job runs until it can: {state['cannot_be_written']}")
    lines.append("")
    rows = [_queue(row, state["depth_limit"]) for row in state["queues"]]
    lines += table(QUEUE_HEADS, rows) if rows else ["No job waits or runs."]
    if any(row["capped"] for row in state["queues"]):
        lines.append(f"+: {state['depth_limit']:,} or more; nothing is counted further.")
    limit = state["count_limit"]
    counts = (f"{name} {number}{'+' if number >= limit else ''}" for name, number in state["finished"].items())
    lines += ["", "Finished: " + ", ".join(counts)]
    lines += [_paused(row) for row in state["pauses"]]
    lines += [_unknown(row, state["depth_limit"]) for row in state["unknown_types"]]
    lines += _schedules(state["schedules"])
    lines += _may_have_happened(state["may_have_happened"], limit)
    return [*lines, "", *_workers(state["workers"])]


def findings(found: Sequence[Finding]) -> list[str]:
    """Say what is wrong, and below it what else should be looked at."""
    notes = [finding for finding in found if finding.is_note]
    wrong = [finding for finding in found if not finding.is_note]
    lines = _findings(wrong) or ["Nothing is wrong, as far as can be seen from here."]
    return [*lines, "To be looked at:", *_findings(notes)] if notes else lines


def _findings(found: Sequence[Finding]) -> list[str]:
    return [plain(line) for finding in found for line in (f"{finding.name}: {finding.text}", f"  -> {finding.remedy}")]


def plain(line: str) -> str:
    """Return a line without what a terminal would take for a command: names and reasons are anybody's."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _queue(row: dict[str, Any], limit: int) -> list[object]:
    counted = ("due", "later", "retries", "parked", "suspects", "running")
    said = {name: f"{row[name]}+" if row["capped"] and row[name] >= limit else row[name] for name in counted}
    return [{**row, **said}[name] for name in QUEUE_NAMES]


def _unknown(row: dict[str, Any], limit: int) -> str:
    number = f"{row['jobs']}{'+' if row['jobs'] >= limit else ''}"
    return (
        f"No live worker knows {row['type']!r}: {number} jobs parked in the queue {row['queue']!r}, the oldest due for "
        f"{row['waiting_seconds']:.0f} s"
    )


def _schedules(counts: dict[str, int]) -> list[str]:
    if not counts["enabled"] and not counts["paused"]:
        return []
    said = ", ".join(f"{number} {name}" for name, number in counts.items() if number or name == "enabled")
    return [f"Schedules: {said}" + ("; see `jobs schedules`" if counts["broken"] or counts["overdue"] else "")]


def _may_have_happened(found: dict[str, Any], limit: int) -> list[str]:
    number = found["effects"]
    if not number:
        return []
    said = "1 effect" if number == 1 else f"{number}{'+' if number >= limit else ''} effects"
    return [
        f"May have happened: {said} outside the database, without an answer for up to {found['oldest_seconds']:.0f} s; see "
        "Effects in the admin"
    ]


def _paused(row: dict[str, Any]) -> str:
    by = f" by {row['by']}" if row["by"] else ""
    end = (
        "until it is resumed"
        if row["until"] is None
        else f"for another {row['seconds_left']:.0f} s, until {row['until']}"
    )
    why = f": {row['why']}" if row["why"] else ""
    return f"Paused: {row['kind']} {row['name']!r}{by}, for {row['since_seconds']:.0f} s now, {end}{why}"


def _workers(workers: list[dict[str, Any]]) -> list[str]:
    if not workers:
        return ["No worker runs: start `manage.py runworkers`."]
    rows = [
        [
            f"{row['host']}:{row['pid']}",
            "all" if row["queues"] is None else ",".join(row["queues"]),
            row["threads"],
            row["types"],
            row["heartbeat_seconds"],
            (row["asked"] or "live") if row["live"] else "silent",
            "NOTIFY" if row["listens"] else "poll",
        ]
        for row in workers
    ]
    return table(("worker", "queues", "threads", "types", "heartbeat s ago", "state", "woken by"), rows)


def listing(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["No job matches."]
    heads = ("id", "status", "type", "queue", "priority", "attempt", "due at", "finished at", "said")
    values = [
        [
            row["id"],
            f"{row['status']} ({row['parked']})" if row["parked"] else row["status"],
            row["type"],
            row["queue"],
            row["priority"],
            f"{row['attempt']}/{row['max_attempts']}",
            row["run_at"],
            row["finished_at"],
            row["error"] and _one_line(row["error"]),
        ]
        for row in rows
    ]
    return table(heads, values)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID_LIMIT else f"{text[: SAID_LIMIT - 3]}..."


def story(found: dict[str, Any]) -> list[str]:
    lines = [f"Job {found['id']}  {found['type']}  {found['status']}", found["explanation"]]
    lines += [*_left_by(found["may_have_happened"]), ""]
    width = 16
    for label, value in _facts(found):
        if value not in (None, ""):
            lines.append(f"{label:<{width}} {value}")
    if found["history"]:
        lines += ["", "Runs that ended without success, and acts on the job (the first and the last nine are kept):"]
        lines += table(
            ("run", "ended", "seconds", "worker", "at", "error"),
            [
                [row.get(name) for name in ("run", "cause", "seconds", "worker", "at", "error")]
                for row in found["history"]
            ],
        )
    if found["last_error"] and not _is_no_error(found):
        lines += ["", "Last error:", *(f"  {line}" for line in found["last_error"].rstrip().split("\n"))]
    return lines


def _left_by(found: dict[str, Any]) -> list[str]:
    keys = [repr(key) for key in found["newest"]]
    if not keys:
        return []
    more = found["effects"] - len(keys)
    return [
        f"May have happened: {', '.join(keys)}{f' and {more} more' if more else ''}, outside the database, without an answer; "
        "see Effects in the admin"
    ]


def _is_no_error(found: dict[str, Any]) -> bool:
    """Tell whether what the last run left was the word of an outcome that is no error."""
    said = [line for line in found["history"] if line.get("error") == found["last_error"]]
    return bool(said) and said[-1].get("cause") == "snoozed"


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    progress = found["progress"]
    return [
        ("arguments", _call(found["args"], found["kwargs"])),
        ("queue", f"{found['queue']}, priority {found['priority']}"),
        ("tags", ", ".join(found["tags"])),
        ("schedule", found["schedule"] and f"{found['schedule']}, {_slot(found['slot'])}"),
        ("idempotency key", found["idempotency_key"] and f"{found['idempotency_key']} (holds: {found['key_holds']})"),
        ("attempts", _attempts(found)),
        ("timeout", "none" if found["timeout"] is None else f"{found['timeout']:g} s"),
        ("created at", found["created_at"]),
        ("due at", found["run_at"]),
        ("expires at", found["expires_at"]),
        ("first started at", found["started_at"]),
        ("last started at", found["last_started_at"]),
        ("finished at", found["finished_at"]),
        ("archived at", found["archived_at"]),
        ("requeued as", found["requeued_as"] and f"job {found['requeued_as']}"),
        ("cancelled", found["cancel_reason"]),
        ("held by", found["locked_by"] and f"{found['locked_by']} until {found['locked_until']}"),
        ("progress", progress and f"{progress['done']:g} of {progress['total']:g} {progress['note']}".rstrip()),
        ("result", None if found["result"] is None else _short(json.dumps(found["result"], ensure_ascii=False))),
    ]


def _slot(slot: str | None) -> str:
    return f"slot {slot}" if slot else "run now by a person"


def _attempts(found: dict[str, Any]) -> str:
    ends = f"{found['attempts']} of {found['max_attempts']} failed"
    return f"{ends}; claimed {found['runs']} time{'s' * (found['runs'] != 1)}, {found['losses']} losses in a row"


def _call(args: list[Any], kwargs: dict[str, Any]) -> str:
    parts = [json.dumps(value, ensure_ascii=False) for value in args]
    parts += [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in kwargs.items()]
    return _short(f"({', '.join(parts)})")


def _short(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}... ({len(text):,} characters)"
