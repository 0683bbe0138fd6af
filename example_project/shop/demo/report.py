"""The words after a run: a table by type, what was found, and where to look."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.models import Avg, Count, DurationField, F, Max, Min, Q

from example_project import database
from example_project.database import shown
from example_project.shop.demo.workers import LOG, MANAGE

if TYPE_CHECKING:
    from example_project.shop.demo.check import Finding
    from example_project.shop.demo.work import Run
    from example_project.shop.payments import PaymentService

_COLUMNS = ("job", "jobs", "done", "retried", "dead", "mean s", "jobs/s")


def table(run: Run) -> str:
    """Return the table. `jobs/s` counts from the first start of a type to its last end."""
    rows = [_row(figures) for figures in _figures(run)]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in (_COLUMNS, *rows))
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _figures(run: Run) -> list[dict[str, Any]]:
    columns: dict[str, Any] = {
        "jobs": Count("id"),
        "done": Count("id", filter=Q(status="done")),
        "retried": Count("id", filter=Q(attempts__gt=0)),
        "dead": Count("id", filter=Q(status__in=["dead", "failed"])),
        "mean": Avg(F("finished_at") - F("last_started_at"), output_field=DurationField()),
        "first": Min("started_at"),
        "last": Max("finished_at"),
    }
    by_type: list[dict[str, Any]] = [dict(row) for row in run.jobs().values("type").annotate(**columns)]
    by_type.sort(key=lambda row: (row["first"] is None, row["first"]))
    return [*by_type, {"type": "all", **run.jobs().aggregate(**columns)}]


def _row(figures: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(figures[name]) for name in ("jobs", "done", "retried", "dead"))
    if figures["first"] is None or figures["last"] is None:
        return (figures["type"], *counts, "", "")
    span = max((figures["last"] - figures["first"]).total_seconds(), 0.001)
    mean = figures["mean"].total_seconds()
    return (figures["type"], *counts, f"{mean:.3f}", f"{figures['jobs'] / span:.1f}")


def verdict(findings: list[Finding]) -> str:
    """Return a line for each finding."""
    return "\n".join(
        f"{'as expected' if found.good else 'DIFFERENT  '}  {found.what}: {found.found}"
        + ("" if found.good else f", expected {found.expected}")
        for found in findings
    )


def payment_line(service: PaymentService) -> str:
    return f"Payment service: {service.calls.total()} calls, {len(service.charges)} distinct charges."


def _same_database() -> str:
    """Return what to write before a command so that it opens the database of this run."""
    if database.chosen is None or database.chosen.kind == "embedded":
        return ""
    return "DATABASE_URL=... " if database.chosen.kind == "given" else "EXAMPLE_DATABASE=sqlite "


def places(run: Run) -> str:
    """Return where the results are."""
    manage = f"{_same_database()}{shown(Path(sys.executable))} {shown(MANAGE)}"
    return "\n".join(
        [
            f"Labels:        {shown(run.labels)}",
            f"Mails:         {shown(run.mails)}",
            f"Workers' log:  {shown(LOG)}",
            f"Dead letter:   {manage} jobs list --status dead",
        ]
    )


def leftovers(run: Run) -> str:
    """Return why jobs of the run have not ended, for the first few."""
    return "\n".join(f"  {job.pk} {job.type}: {job.explain()}" for job in run.unfinished().order_by("id")[:5])


def failures(run: Run) -> str:
    """Return the last line of the error of each job that did not succeed, or not at once."""
    troubled = run.jobs().exclude(last_error="").order_by("id")[:10]
    return "\n".join(f"  {job.type} {job.args}: {job.status}, {_last_line(job.last_error)}" for job in troubled)


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")
