"""Lists that stay quick whatever the table holds: nothing is counted to its end, and no search reads every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Right
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_jobs.admin import beside
from django_jobs.admin.filters import UNINDEXED
from django_jobs.models import Job

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

COUNT_LIMIT = 10_000
# How many of the newest rows are looked through for what no index finds.
LOOK_BACK = 1_000_000
KEYS_FOUND = 1_000
ID_LIMIT = 2**63
# Up to a MiB each, and not shown in a list.
HEAVY = ("payload", "result", "history", "meta", "last_error")


class CappedPaginator(_Paginator):
    """Counts no further than COUNT_LIMIT."""

    @cached_property
    def count(self) -> int:
        found = self.object_list
        if isinstance(found, QuerySet):
            return int(found.order_by()[:COUNT_LIMIT].count())
        return len(found)

    @property
    def is_capped(self) -> bool:
        return self.count >= COUNT_LIMIT


class JobChangeList(ChangeList):
    """The list of jobs, without the columns that are large."""

    looks_back = False

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Job]:
        found: QuerySet[Job] = super().get_queryset(request, *args, **kwargs)
        self.looks_back = self.reads_rows()
        if self.looks_back:
            newest = self.root_queryset.order_by().aggregate(newest=Max("pk"))["newest"] or 0
            found = found.filter(pk__gt=newest - LOOK_BACK)
        return found.annotate(error_end=Right("last_error", 300)).defer(*HEAVY)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = beside.with_calls(beside.with_held(self.result_list))
        self.full_result_count = self.result_count  # else the search says a number that may be the limit

    def reads_rows(self) -> bool:
        """Tell whether what is asked for is found only by reading one row after the other."""
        narrowed = any(self.params.get(name) for name in ("state", "queue", "type"))
        return narrowed and not self.query and self.params.get("state", "") in UNINDEXED


def search(queryset: QuerySet[Job], term: str) -> QuerySet[Job]:
    """Narrow to the job of this id, and to those whose idempotency key is the term or begins with it."""
    keyed = queryset.filter(idempotency_key__startswith=term).order_by()
    # Asked for first: with the list's own order beside it, PostgreSQL may prefer to read the table in that order.
    wanted = Q(pk__in=list(keyed.values_list("pk", flat=True)[:KEYS_FOUND]))
    return queryset.filter(wanted | Q(pk__in=numbered(term)))


def numbered(term: str) -> list[int]:
    """Return the id that a term is, if it can be one."""
    return [int(term)] if term.isascii() and term.isdigit() and len(term) < 20 and int(term) < ID_LIMIT else []
