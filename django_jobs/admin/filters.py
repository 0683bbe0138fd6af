"""What the list of jobs can be narrowed to. Each state is asked for so that a partial index holds its rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_jobs import registry
from django_jobs.engines import jobs_alias
from django_jobs.models import Job, JobQuerySet, Worker
from django_jobs.models.clock import Clock

QUEUES_SHOWN = 50
AS_CLAIMED = ("queue", "-priority", "run_at", "id")
NEWEST = ("-id",)
LAST_ENDED = ("-finished_at", "-id")
# The order of each state is that of its index, or its rows are few enough to sort.
ORDERS = {
    "due": AS_CLAIMED,
    "later": AS_CLAIMED,
    "retries": AS_CLAIMED,
    "parked": ("type", "-priority", "run_at", "id"),
    "dead-letters": LAST_ENDED,
    "cancelled": LAST_ENDED,
}
# The many rows that no partial index holds.
UNINDEXED = ("", "done")


class StateFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("due", _("due, or held by a pause")),
            ("later", _("scheduled for later")),
            ("retries", _("retries")),
            ("parked", _("parked")),
            ("running", _("running")),
            ("done", _("done")),
            ("dead-letters", _("dead letters (dead or failed)")),
            ("cancelled", _("cancelled")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        assert isinstance(queryset, JobQuerySet)
        match self.value():
            case "due":
                return queryset.due()
            case "later":
                return queryset.ready().filter(parked__isnull=True, run_at__gt=Clock())
            case "retries":
                return queryset.retries().filter(parked__isnull=True)
            case "parked":
                return queryset.parked()
            case "running":
                return queryset.running()
            case "dead-letters":
                return queryset.dead_letters()
            case "done" | "cancelled" as status:
                return queryset.filter(status=status)
            case None | "":
                return queryset
            case _:
                return queryset.none()


class _ExactFilter(admin.SimpleListFilter):
    """Offers the values that are known without looking through the table, and the one that the address names."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        chosen = self.used_parameters.get(str(self.parameter_name))
        return [(name, name) for name in sorted({*self.known(), *([chosen] if chosen else [])})]

    def known(self) -> set[str]:
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        value = self.value()
        if not value:
            return queryset
        # No row holds NUL, and PostgreSQL takes none in a question either.
        return queryset.none() if "\x00" in value else queryset.filter(**{str(self.parameter_name): value})


class QueueFilter(_ExactFilter):
    title = _("queue")
    parameter_name = "queue"

    def known(self) -> set[str]:
        return known_queues()


class TypeFilter(_ExactFilter):
    title = _("type")
    parameter_name = "type"

    def known(self) -> set[str]:
        return known_types()


def known_queues() -> set[str]:
    """Return the queues of types, workers and waiting jobs."""
    served = Worker.objects.using(jobs_alias()).values_list("queues", flat=True)
    return {*registry.queues(), *waiting_queues(), *chain(*(queues or [] for queues in served))}


def known_types() -> set[str]:
    """Return the types that this process or a worker knows."""
    known = Worker.objects.using(jobs_alias()).values_list("types", flat=True)
    return {*registry.names(), *chain(*(types or [] for types in known))}


def waiting_queues() -> Iterator[str]:
    """Return the queues in which jobs wait, by one step through the claim's index for each."""
    waiting = Job.objects.using(jobs_alias()).ready().filter(parked__isnull=True).order_by(*AS_CLAIMED)
    last = ""
    for _number in range(QUEUES_SHOWN):
        found = waiting.filter(queue__gt=last).values_list("queue", flat=True).first()
        if found is None:
            return
        yield found
        last = found
