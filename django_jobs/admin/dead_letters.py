"""Dead letters by what they say: those of one type whose errors end in the same line, whatever numbers are in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Min
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_jobs import redact
from django_jobs.admin import asked, shown
from django_jobs.admin.listing import bulk_url
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import LAST_ENDED
from django_jobs.engines import jobs_alias
from django_jobs.models import Job
from django_jobs.queue.error_text import FoldedLine
from django_jobs.queue.sought import Sought

# 10 us for each, most of it to find the last line of an error of 2 KiB.
NEWEST_READ = 40_000
GROUPS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one type and error. `line` is masked; it is empty if they have no error."""

    type: str
    line: str
    count: str
    newest: str
    oldest: str
    example: str
    list_url: str
    requeue_url: str


def dead_letters(*, may_requeue: bool) -> dict[str, Any]:
    """Return the groups among the newest dead letters, the largest first, and how many were read and left out."""
    rows = Job.objects.using(jobs_alias()).dead_letters().order_by(*LAST_ENDED)
    lines = first_rows(rows, NEWEST_READ).annotate(line=FoldedLine("last_error")).values("type", "line").order_by()
    counted = lines.annotate(
        number=Count("pk"), newest=Max("finished_at"), oldest=Min("finished_at"), example=Max("pk"), clock=Max(Now())
    )
    found = list(counted.order_by("-number", "-example")[: GROUPS_SHOWN + 1])
    number = rows.order_by()[: NEWEST_READ + 1].count()
    groups = [_group(row, may_requeue) for row in found[:GROUPS_SHOWN]]
    return {
        "groups": groups,
        "acts": any(group.requeue_url for group in groups),
        "nothing": _("no error is stored"),
        "more_groups": len(found) > GROUPS_SHOWN,
        "groups_shown": GROUPS_SHOWN,
        "number": min(number, NEWEST_READ),
        "number_text": f"{min(number, NEWEST_READ):,}",
        "is_cut": number > NEWEST_READ,
    }


def _group(row: dict[str, Any], may_requeue: bool) -> Group:
    line = redact.text(row["line"])
    # No address has what may not be seen: of such a line, the link leads to all of the type.
    told = row["line"] if line == row["line"] else ""
    query = asked.query_of(Sought(state="dead-letters", type=row["type"], line=told))
    listed = f"{reverse('admin:django_jobs_job_changelist')}?{urlencode(query)}"
    requeue = bulk_url(urlencode({"act": "requeue", **query})) if may_requeue and told else ""
    return Group(
        type=shown.name(row["type"]),
        line=line,
        count=f"{row['number']:,}",
        newest=shown.age(row["newest"], row["clock"]),
        oldest=shown.age(row["oldest"], row["clock"]),
        example=shown.job_link(row["example"]),
        list_url=listed,
        requeue_url=requeue,
    )
