"""Dead letters by what they say: those of one type whose errors end in the same line, whatever numbers are in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Max, Min, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import redact
from django_jobs.admin import asked, beside, figures, shown
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import LAST_ENDED
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob
from django_jobs.models import BulkAct, Job
from django_jobs.queue.error_text import FoldedLine
from django_jobs.queue.sought import Sought
from django_jobs.texts import translated

# 10 us for each, most of it to find the last line of an error of 2 KiB.
NEWEST_READ = 25_000
GROUPS_SHOWN = 100
_NUMBER = re.compile("[0-9]+")
NARROWED = {"queue": gettext_lazy("queue"), "type": gettext_lazy("type")}


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


def dead_letters(query: Mapping[str, str], *, may_requeue: bool) -> dict[str, Any]:
    """Return the groups among the newest dead letters, the largest first, and how many were read and left out.

    A `queue` and a `type` in the query narrow them.
    """
    try:
        sought = asked.sought_of({name: query.get(name, "") for name in NARROWED})
    except InvalidJob as error:
        return {"problem": translated(error)}
    rows = Job.objects.using(jobs_alias()).dead_letters().order_by(*LAST_ENDED)
    found = _counted(sought, rows)
    number = rows[: NEWEST_READ + 1].count()
    examples = Job.objects.using(jobs_alias()).filter(pk__in=[row["example"] for row in found]).only("type")
    secrets = {job.pk: job.secrets for job in beside.with_calls(examples.annotate(beginning=beside.BEGINNING))}
    groups = [_group(row, secrets.get(row["example"], ()), sought, may_requeue) for row in found[:GROUPS_SHOWN]]
    return {
        "groups": groups,
        "acts": any(group.requeue_url for group in groups),
        "narrowed": [(label, getattr(sought, name)) for name, label in NARROWED.items() if getattr(sought, name)],
        "nothing": _("no error is stored"),
        "more_groups": len(found) > GROUPS_SHOWN,
        "groups_shown": GROUPS_SHOWN,
        "number": min(number, NEWEST_READ),
        "number_text": figures.number(min(number, NEWEST_READ)),
        "is_cut": number > NEWEST_READ,
    }


def _counted(sought: Sought, rows: QuerySet[Any]) -> list[dict[str, Any]]:
    lines = sought.rows(first_rows(rows, NEWEST_READ)).annotate(line=FoldedLine("last_error")).values("type", "line")
    counted = lines.order_by().annotate(
        number=Count("pk"), newest=Max("finished_at"), oldest=Min("finished_at"), example=Max("pk"), clock=Max(Now())
    )
    return list(counted.order_by("-number", "-example")[: GROUPS_SHOWN + 1])


def _group(row: dict[str, Any], secrets: Iterable[str], sought: Sought, may_requeue: bool) -> Group:
    line = redact.text(row["line"], [*secrets, *_folded(secrets)])
    # No address has what may not be seen: of such a line, the link leads to all of the type.
    told = row["line"] if line == row["line"] else ""
    of_it = replace(sought, state="dead-letters", type=row["type"], line=told)
    return Group(
        type=shown.name(row["type"]),
        line=line,
        count=figures.number(row["number"]),
        newest=shown.age(row["newest"], row["clock"]),
        oldest=shown.age(row["oldest"], row["clock"]),
        example=shown.job_link(row["example"]),
        list_url=asked.list_address(of_it),
        requeue_url=asked.bulk_address(BulkAct.Act.REQUEUE, of_it) if may_requeue and told else "",
    )


def _folded(secrets: Iterable[str]) -> Iterator[str]:
    """Return secrets as they are in a line whose numbers are folded, unless nothing of them is left then."""
    folded = (_NUMBER.sub("#", secret) for secret in secrets)
    return (secret for secret in folded if len(secret.replace("#", "")) >= redact.SHORTEST_SECRET)
