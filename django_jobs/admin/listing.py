"""Lists that stay quick whatever the table holds: nothing is counted to its end, and no search reads every row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_jobs.admin import asked, beside, figures
from django_jobs.admin.addresses import address
from django_jobs.admin.known import known
from django_jobs.admin.paging import LAST, Page, Place, page_at, place_of
from django_jobs.admin.strands import Way, way
from django_jobs.exceptions import InvalidJob
from django_jobs.models import Job
from django_jobs.queue.error_text import error_end
from django_jobs.queue.sought import ENDED, Sought
from django_jobs.texts import translated

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

COUNT_LIMIT = 10_000
# How many of the newest rows are looked through for what no index finds; of effects.
LOOK_BACK = 1_000_000
# How many rows a page of jobs looks through. Measured (PostgreSQL 15, in memory, one row in four of a page): 0.5 us for a row
# by its columns, 1 us by an argument or a tag, 6 us by its error, if that is of 2 KiB. With seven processes on two cores all
# pages still answered within 0.9 s.
LOOK_AT = 50_000
LOOK_AT_ERRORS = 25_000
AT = "at"
_NAMED = re.compile(r"[A-Za-z_][\w.]*=.+")
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
    """The list of jobs: those that the address asks for, at the place that it names, without the columns that are large."""

    archived = False
    # The one that the list is about, if it is not chosen.
    state = ""
    problem = ""
    at = ""
    sought: Sought | None = None
    page: Page

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return what is asked for, in no order; `get_results` finds the page."""
        # A filter or a search begins at the first page.
        self.at = self.params.pop(AT, self.at)
        self.filter_params.pop(AT, None)
        self.filter_specs, self.has_filters, _rest, _many, self.has_active_filters = self.get_filters(request)
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        try:
            self.sought = self.asked_for(request)
        except InvalidJob as error:
            self.problem = translated(error)
            return self.root_queryset.none()
        return self.sought.rows(self.root_queryset)

    def asked_for(self, request: HttpRequest) -> Sought:
        given = {**request.GET.dict(), **({"state": self.state} if self.state else {})}
        return asked.sought_of(given, archived=self.archived, now=known(request).now)

    def get_results(self, request: HttpRequest) -> None:
        self.may_see_archive = request.user.has_perm("django_jobs.view_archivedjob")
        self.any_paused = bool(known(request).paused) and not self.archived
        self.page = self._page()
        shown = self.root_queryset.filter(pk__in=self.page.ids).defer(*HEAVY)
        found = shown.annotate(error_end=error_end(), beginning=beside.BEGINNING)
        jobs = {job.pk: job for job in beside.with_calls(beside.with_held(found, known(request).paused))}
        self.result_list = [jobs[pk] for pk in self.page.ids if pk in jobs]
        self.result_count = self.full_result_count = self.page.found
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True
        self.paginator = CappedPaginator(self.result_list, self.list_per_page)

    def _page(self) -> Page:
        if self.sought is None:
            return Page([], 0)
        self.way: Way = way(self.sought, self.root_queryset, archived=self.archived)
        try:
            place = place_of(self.at, self.way)
        except InvalidJob as error:
            self.problem = translated(error)
            place = Place()
        return page_at(self.way, place, size=self.list_per_page, most=COUNT_LIMIT, looked=self.looked)

    # For the template.

    @property
    def looked(self) -> int:
        """How many rows a page looks through at most."""
        return LOOK_AT_ERRORS if self.sought is not None and self.sought.reads_errors else LOOK_AT

    @property
    def reads_rows(self) -> bool:
        """Whether what is asked for is found only by reading one row after the other."""
        return self.sought is not None and self.way.rest is not None

    def url_at(self, place: Place | None) -> str:
        return "" if place is None else self.get_query_string({AT: place.written() or None})

    @property
    def first_url(self) -> str:
        return "" if self.sought is None or self.page.previous is None else self.url_at(Place())

    @property
    def previous_url(self) -> str:
        return self.url_at(self.page.previous)

    @property
    def next_url(self) -> str:
        return self.url_at(self.page.next)

    @property
    def last_url(self) -> str:
        return "" if self.page.next is None else self.url_at(Place(LAST))

    @property
    def further_url(self) -> str:
        return "" if self.page.next is not None else self.url_at(self.page.further)

    @property
    def is_whole(self) -> bool:
        """Whether the number of what was found is that of all there are."""
        return not self.reads_rows or (self.page.previous is None and self.page.further is None)

    @property
    def looked_text(self) -> str:
        return figures.number(self.looked)

    @property
    def count_text(self) -> str:
        return figures.number(self.page.found)

    @property
    def error_url(self) -> str:
        """Where to look for a number in errors."""
        term = self.query.strip()
        if self.sought is None or not term or self.sought.key != term:
            return ""
        return self.get_query_string({SEARCH_VAR: None, "error": term})

    @property
    def key_url(self) -> str:
        """Of the archive: where to look for a search as a key."""
        term = self.query.strip()
        if not self.archived or self.sought is None or self.sought.error != term or not term:
            return ""
        return self.get_query_string({SEARCH_VAR: f"key:{term}"})

    @property
    def retries_url(self) -> str:
        """Where an error is looked for that jobs may have which wait for another attempt."""
        if self.archived or self.sought is None or not self.sought.reads_errors or self.sought.state:
            return ""
        return address("django_jobs_job_retries", query=self.asked_query)

    @property
    def argument_hint(self) -> str:
        """How a search that may have been meant so finds an argument."""
        found = _NAMED.fullmatch(self.query.strip())
        return f"kwargs.{found[0]}" if found and self.sought is not None and self.sought.error else ""

    @property
    def argument_url(self) -> str:
        return self.get_query_string({SEARCH_VAR: self.argument_hint})

    @property
    def asked_query(self) -> dict[str, str]:
        """What is asked for, as another list takes it."""
        return {} if self.sought is None else asked.query_of(self.sought)

    @property
    def narrowed(self) -> bool:
        """Whether not all jobs are asked for."""
        return self.sought not in (None, Sought())

    @property
    def archive_url(self) -> str:
        """Where to look for the same in the archive, if nothing was found here that can be there."""
        if self.archived or self.sought is None or self.page.keys or self.sought.state not in ("", *ENDED):
            return ""
        found = address("django_jobs_archivedjob_changelist", query=self.asked_query) if self.narrowed else ""
        return found if self.may_see_archive else ""


def search(queryset: QuerySet[Job], term: str) -> QuerySet[Job]:
    """Narrow to the job of this id, and to those whose idempotency key is the term or begins with it."""
    return Sought(key=term).rows(queryset) if term and "\x00" not in term else queryset.none()
