"""What the list of jobs can be narrowed to. The choices are known without looking through the table of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from django_jobs import registry
from django_jobs.admin import asked
from django_jobs.admin.known import known
from django_jobs.models import Job
from django_jobs.queue.sought import ENDED

WORKERS_SHOWN = 50


class _Choices(admin.SimpleListFilter):
    """Offers choices, and the one that the address names; `asked.sought_of` finds the jobs."""

    template = "admin/django_jobs/job/filter.html"
    is_open = False

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the choices; the first says whether they are to be seen at once."""
        is_open = self.is_open or self.value() is not None
        return ({**choice, "is_open": is_open} for choice in super().choices(changelist))

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = list(self.offered(request))
        chosen = self.used_parameters.get(str(self.parameter_name))
        if chosen and chosen not in dict(found):
            found.append((chosen, chosen))
        return found

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset


class StateFilter(_Choices):
    title = gettext_lazy("state")
    parameter_name = "state"
    is_open = True

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return asked.STATE_LABELS.items()


class EndFilter(StateFilter):
    """Of archived jobs."""

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return [(state, asked.STATE_LABELS[state]) for state in ENDED]


class TimeFilter(_Choices):
    """Ready spans, beside the free ones of `FreeFilter`."""

    title = gettext_lazy("time")
    parameter_name = "span"
    is_open = True

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return asked.SPANS.items()


class QueueFilter(_Choices):
    title = gettext_lazy("queue")
    parameter_name = "queue"
    is_open = True

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in sorted(known_queues(request))]


class TypeFilter(_Choices):
    title = gettext_lazy("type")
    parameter_name = "type"

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in sorted(known_types(request))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow other lists, which have it too. No row holds NUL, and PostgreSQL takes none in a question either."""
        value = self.value()
        if not value:
            return queryset
        return queryset.none() if "\x00" in value else queryset.filter(type=value)


class PriorityFilter(_Choices):
    title = gettext_lazy("lane (priority)")
    parameter_name = "priority"

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        numbers = sorted(known_priorities(request), reverse=True)
        return [(str(number), f"{number:+d}" if number else "0") for number in numbers]


class ParkedFilter(_Choices):
    title = gettext_lazy("why it is parked")
    parameter_name = "parked"

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return Job.Parked.choices


class WorkerFilter(_Choices):
    title = gettext_lazy("worker that runs it")
    parameter_name = "worker"

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return known(request).workers[:WORKERS_SHOWN]


class ScheduleFilter(_Choices):
    title = gettext_lazy("schedule")
    parameter_name = "schedule"

    def offered(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in known(request).schedules]


class FreeFilter(admin.ListFilter):
    """Fields for what has no list of choices."""

    title = gettext_lazy("what is in it")
    template = "admin/django_jobs/job/free_filter.html"
    fields = (
        ("since", gettext_lazy("since"), "2030-12-31T18:00, 12h"),
        ("until", gettext_lazy("until"), "2030-12-31T18:00, 30m"),
        ("error", gettext_lazy("error contains"), ""),
        ("argument", gettext_lazy("argument"), "kwargs.order_id=42"),
        ("tag", gettext_lazy("tag"), ""),
    )
    # Asked for by links alone.
    hidden = ("key", "line")

    def __init__(self, request: HttpRequest, params: dict[str, list[str]], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self._names():
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]

    def expected_parameters(self) -> list[str | None]:
        return [*self._names()]

    def _names(self) -> list[str]:
        return [*(name for name, _label, _example in self.fields), *self.hidden]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        """Return one choice, which the template shows as a form."""
        names = self._names()
        yield {
            "selected": bool(self.used_parameters),
            "fields": [(name, label, self.used_parameters.get(name, ""), hint) for name, label, hint in self.fields],
            "only_by_link": [
                (name, self.used_parameters[name]) for name in self.hidden if name in self.used_parameters
            ],
            "others": [(name, value) for name, value in changelist.params.items() if name not in names],
            "clear": changelist.get_query_string(remove=names),
            "tags": sorted(known_tags()),
        }


def known_queues(request: HttpRequest | None = None) -> set[str]:
    """Return the queues of types, workers and waiting jobs."""
    found = known(request)
    return {*registry.queues(), *(queue for queue, _priority in found.lanes), *found.served}


def known_types(request: HttpRequest | None = None) -> set[str]:
    """Return the types that this process or a worker knows."""
    return {*registry.names(), *known(request).types}


def known_priorities(request: HttpRequest) -> set[int]:
    """Return the priorities of types and waiting jobs, and 0."""
    types = [registry.find(name) for name in registry.names()]
    return {0, *(found.priority for found in types if found), *(priority for _queue, priority in known(request).lanes)}


def known_tags() -> set[str]:
    """Return the tags of types."""
    return {tag for name in registry.names() if (found := registry.find(name)) is not None for tag in found.tags}
