"""Dead letters by what they say: those of one type whose errors end in the same line, whatever numbers are in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet, Value
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import redact, redact_folded
from django_jobs.admin import asked, beside, figures, shown
from django_jobs.admin.paging import first_rows
from django_jobs.admin.strands import LAST_ENDED
from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob
from django_jobs.models import BulkAct, Job
from django_jobs.queue.error_text import FoldedLine, HasText
from django_jobs.queue.sought import Sought
from django_jobs.texts import translated

# 10 us for each, most of it to find the last line of an error of 2 KiB.
NEWEST_READ = 25_000
GROUPS_SHOWN = 100
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
    standing = _secrets(sought, rows, {(row["type"], row["line"]) for row in found if row["line"]})
    groups = [_group(row, standing[row["type"], row["line"]], sought, may_requeue) for row in found[:GROUPS_SHOWN]]
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
    counted = (
        _lines(sought, rows)
        .values("type", "line")
        .order_by()
        .annotate(
            number=Count("pk"),
            newest=Max("finished_at"),
            oldest=Min("finished_at"),
            example=Max("pk"),
            clock=Max(Now()),
        )
    )
    return list(counted.order_by("-number", "-example")[: GROUPS_SHOWN + 1])


def _lines(sought: Sought, rows: QuerySet[Any]) -> QuerySet[Any]:
    found: QuerySet[Any] = sought.rows(first_rows(rows, NEWEST_READ)).annotate(line=FoldedLine("last_error"))
    return found


def _secrets(sought: Sought, rows: QuerySet[Any], groups: set[tuple[str, str]]) -> dict[tuple[str, str], set[str]]:
    """Return what stands in the line of each group of that which is secret in the arguments of any of its jobs.

    Asked for are only those of which something can be: some 50 us for each.
    """
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    words = conf().redact
    if not groups or not words:
        return found
    may_have = Q(type__in=redact_folded.types_with_secrets())
    for word in words:
        # How the databases write the letters of others, and compare them, is not to be relied on.
        may_have |= Q(HasText("beginning", Value(word))) if word.isascii() else Q(pk__gt=0)
    lines = _lines(sought, rows).filter(type__in={name for name, _line in groups}).annotate(beginning=beside.BEGINNING)
    for name, line, beginning in lines.filter(may_have).values_list("type", "line", "beginning").iterator():
        if (name, line) in groups:
            found[name, line] |= redact_folded.standing(line, redact.secrets(name, beginning or ""))
    return found


def _group(row: dict[str, Any], standing: set[str], sought: Sought, may_requeue: bool) -> Group:
    line = redact_folded.line(row["line"], standing)
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
