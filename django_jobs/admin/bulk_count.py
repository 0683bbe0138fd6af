"""What an act upon all that a filter finds would mean: how many jobs, and what some of them look like.

Neither takes long, whatever the table holds: no more rows are looked through than for a page of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Count, QuerySet, Value
from django.db.models.functions import Now

from django_jobs.admin import beside, listing, shown
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import NEWEST, NEWEST_OF_FEW, Strand, Way, way, way_of_waiting
from django_jobs.engines import jobs_alias
from django_jobs.models import BulkAct, Job
from django_jobs.queue.bulk_acts import meant
from django_jobs.queue.error_text import error_end
from django_jobs.queue.sought import Sought

EXAMPLES = 5


@dataclass(slots=True)
class Survey:
    """How many jobs an act would mean now, and whether there may be more; None and True when none was found in what was
    looked through, and that was not all. `looked`: through how many rows at most.
    """

    number: int | None
    is_capped: bool
    looked: int
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """The first rows of a strand."""

    strand: Strand
    size: int

    @property
    def rows(self) -> QuerySet[Any]:
        return first_rows(self.strand.rows.order_by(*self.strand.order), self.size)


def survey(act: str, sought: Sought) -> Survey:
    counted, found = _count(act, sought)
    if found is not None:
        counted.examples = _examples(act, sought, found)
    return counted


def count(act: str, sought: Sought) -> Survey:
    """Return the same without the examples."""
    return _count(act, sought)[0]


def _count(act: str, sought: Sought) -> tuple[Survey, _Part | None]:
    """Return it with the first part in which something was found."""
    most = listing.LOOK_AT_ERRORS if sought.reads_errors else listing.LOOK_AT
    go = _way(act, sought)
    parts, is_all = _parts(go, most)
    numbers = _numbers([meant(act, sought, part.rows) for part in parts])
    number, is_capped = sum(numbers), go.is_cut or not is_all
    found = next((part for part, number in zip(parts, numbers, strict=True) if number), None)
    return Survey(number or (None if is_capped else 0), is_capped, most), found


def _way(act: str, sought: Sought) -> Way:
    """Return where the jobs are; of a filter without a state, in the states that the act means by it."""
    table = Job.objects.using(jobs_alias())
    if sought.state or sought.key or act == BulkAct.Act.DELETE:
        return way(sought, table)
    # Its times are those of the jobs' making, and no state's.
    always = replace(sought, since=None, until=None)
    if act == BulkAct.Act.REQUEUE:
        ways = [way(replace(always, state=state), table) for state in ("dead-letters", "cancelled")]
    else:
        ways = [way_of_waiting(always, table)]
        ways += [way(replace(always, state="running"), table)] if act == BulkAct.Act.CANCEL else []
    return Way([strand for one in ways for strand in one.strands])


def _parts(go: Way, most: int) -> tuple[list[_Part], bool]:
    """Return the first rows of a way, so many at most, and whether there are no others."""
    # In the order of what their index begins with: with more, or none, PostgreSQL may prefer to read the table.
    there = _numbers([first_rows(strand.rows.order_by(strand.order[0]), most + 1) for strand in go.strands])
    parts, left = [], most
    for strand, number in zip(go.strands, there, strict=True):
        if size := min(number, left):
            parts.append(_Part(strand, size))
            left -= size
    return parts, sum(there) <= most


def _numbers(questions: Sequence[QuerySet[Any]]) -> list[int]:
    """Return how many rows each question finds, by one statement."""
    counts = [
        rows.order_by().values(place=Value(place)).annotate(number=Count("*")) for place, rows in enumerate(questions)
    ]
    if not counts:
        return []
    found = counts[0].union(*counts[1:], all=True) if len(counts) > 1 else counts[0]
    numbers = {row["place"]: row["number"] for row in found}
    return [numbers.get(place, 0) for place in range(len(counts))]


def _examples(act: str, sought: Sought, part: _Part) -> list[dict[str, Any]]:
    """Return the first of the jobs that are meant."""
    order = NEWEST if part.strand.order == NEWEST_OF_FEW else part.strand.order
    found = meant(act, sought, part.rows).order_by(*order).defer(*listing.HEAVY)
    read = found.annotate(clock=Now(), error_end=error_end(), beginning=beside.BEGINNING)[:EXAMPLES]
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
