"""Shows the progress of a run: a table that is drawn anew on a terminal, else a line each second."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from django.db.models import Count

from django_jobs.models import Job
from example_project.shop.demo.work import FINAL, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.live import Live
    from rich.table import Table

TYPES = (
    "shop.import_catalogue",
    "shop.import_prices",
    "shop.draw_label",
    "shop.charge_order",
    "shop.book_payment",
    "shop.send_receipt",
)


class Screen(Protocol):
    def show(self, run: Run) -> None: ...


@contextmanager
def opened() -> Iterator[Screen]:
    if not sys.stdout.isatty():
        yield _Lines()
        return
    try:
        from rich.live import Live
    except ImportError:
        yield _Lines()
        return
    with Live(auto_refresh=False) as live:
        yield _Table(live)


def counts(run: Run) -> dict[str, Counter[str]]:
    """Return for each type how many of the run's jobs have which status."""
    found: dict[str, Counter[str]] = {name: Counter() for name in TYPES}
    for row in run.jobs().values("type", "status").annotate(number=Count("id")).order_by():
        found.setdefault(row["type"], Counter())[row["status"]] += row["number"]
    return found


def final(statuses: Counter[str]) -> int:
    return sum(statuses[status] for status in FINAL)


class _Lines:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._next = 0.0

    def show(self, run: Run) -> None:
        elapsed = time.monotonic() - self._start
        if elapsed < self._next:
            return
        self._next = elapsed + 1
        parts = [
            f"{name.removeprefix('shop.')} {final(statuses)}/{statuses.total()}"
            for name, statuses in counts(run).items()
            if statuses
        ]
        print(f"{elapsed:5.1f} s  " + "  ".join(parts), flush=True)


class _Table:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._start = time.monotonic()

    def show(self, run: Run) -> None:
        self._live.update(self._drawn(run), refresh=True)

    def _drawn(self, run: Run) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(title=f"{time.monotonic() - self._start:.0f} s", title_justify="left")
        for heading in ("job", "", "final", "running", "waiting", "dead", "now"):
            table.add_column(heading, justify="left" if heading in {"job", "now"} else "right")
        notes = _notes(run)
        for name, statuses in counts(run).items():
            total = max(statuses.total(), 1)
            table.add_row(
                name.removeprefix("shop."),
                ProgressBar(total=total, completed=final(statuses), width=20),
                f"{final(statuses)}/{statuses.total()}",
                str(statuses["running"]),
                str(statuses["ready"]),
                str(statuses["dead"] + statuses["failed"]),
                notes.get(name, ""),
            )
        return table


def _notes(run: Run) -> dict[str, str]:
    """Return for each type what one of its running jobs says of its progress."""
    running = run.jobs().filter(status=Job.Status.RUNNING, progress__isnull=False)
    return {job.type: "{done:g}/{total:g} {note}".format(**job.progress or {})[:60] for job in running}
