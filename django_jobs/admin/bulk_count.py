"""What an act upon all that a filter finds would mean: how many jobs, and what some of them look like. Neither takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db.models import Max, Min
from django.db.models.functions import Now, Right

from django_jobs.admin import beside, shown
from django_jobs.admin.bounded import TooSlow, bounded
from django_jobs.admin.listing import HEAVY
from django_jobs.admin.strands import NEWEST, ORDERS
from django_jobs.engines import engine, jobs_alias
from django_jobs.models import Job
from django_jobs.queue.bulk_acts import meant
from django_jobs.queue.sought import Sought

MOST, SECONDS = 100_000, 1.0
# Among so many of the newest ids, when all could not be counted in time.
NEWEST_IDS, NEWEST_SECONDS = 100_000, 0.5
EXAMPLES, EXAMPLES_SECONDS = 5, 0.5


class Survey(NamedTuple):
    """How many jobs an act would mean now, and whether there may be more (None and True when no number is known); and some
    of them, None when they were not found in time."""

    number: int | None
    is_capped: bool
    examples: list[dict[str, Any]] | None


def survey(act: str, sought: Sought) -> Survey:
    try:
        with _bounded(sought, SECONDS):
            return Survey(*_counted(act, sought), _examples(act, sought))
    except TooSlow:
        pass
    number, is_capped = _newest(act, sought)
    try:
        with bounded(seconds=EXAMPLES_SECONDS):
            return Survey(number, is_capped, _examples(act, sought))
    except TooSlow:
        return Survey(number, is_capped, None)


def count(act: str, sought: Sought) -> tuple[int | None, bool]:
    """Return how many jobs an act would mean now, and whether there may be more."""
    try:
        with _bounded(sought, SECONDS):
            return _counted(act, sought)
    except TooSlow:
        return _newest(act, sought)


@contextmanager
def _bounded(sought: Sought, seconds: float) -> Iterator[None]:
    """Let nothing take longer; on SQLite, where nothing ends a statement, do not begin what reads many rows."""
    alias = jobs_alias()
    if engine(alias).name == "sqlite" and (sought.reads_content or sought.state in ("", "done")):
        first, last = _ends(alias)
        if last - first >= NEWEST_IDS:
            raise TooSlow("Every row would be read.")
    with bounded(alias, seconds):
        yield


def _counted(act: str, sought: Sought) -> tuple[int, bool]:
    found = meant(act, sought).order_by()[:MOST].count()
    return found, found >= MOST


def _newest(act: str, sought: Sought) -> tuple[int | None, bool]:
    """Count among the newest ids."""
    rows = meant(act, sought).order_by()
    try:
        with bounded(rows.db, NEWEST_SECONDS):
            _first, last = _ends(rows.db)
            return rows.filter(pk__gt=last - NEWEST_IDS)[:MOST].count(), True
    except TooSlow:
        return None, True


def _ends(alias: str) -> tuple[int, int]:
    ends = Job.objects.using(alias).aggregate(first=Min("pk"), last=Max("pk"))
    return ends["first"] or 0, ends["last"] or 0


def _examples(act: str, sought: Sought) -> list[dict[str, Any]]:
    """Return some of the jobs, in the order of their list."""
    found = meant(act, sought).order_by(*ORDERS.get(sought.state, NEWEST)).defer(*HEAVY)
    read = found.annotate(clock=Now(), error_end=Right("last_error", 300))[:EXAMPLES]
    return [_example(job) for job in beside.with_calls(beside.with_held(read))]


def _example(job: Any) -> dict[str, Any]:
    return {
        "job": shown.job_link(job.pk),
        "name": shown.name(job.type),
        "queue": job.queue,
        "call": job.call,
        "state": shown.badge(job, job.clock),
        "error": shown.last_line(job.error_end),
    }
