from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Max, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import redact
from django_jobs.admin import shown
from django_jobs.admin.effect_acts import EffectActsAdmin
from django_jobs.admin.listing import LOOK_BACK
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.engines import jobs_alias
from django_jobs.models import ArchivedJob, Effect, EffectQuerySet, Job


class WhatFilter(admin.SimpleListFilter):
    title = gettext_lazy("what is known")
    parameter_name = "what"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("may-have-happened", _("may have happened")),
            ("answered", _("outside, answered")),
            ("once", _("in the database")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Effect]) -> QuerySet[Effect]:
        assert isinstance(queryset, EffectQuerySet)
        match self.value():
            case "may-have-happened":
                return queryset.may_have_happened()
            case "answered":
                return queryset.filter(kind=Effect.Kind.OUTSIDE, answered_at__isnull=False)
            case "once":
                return queryset.filter(kind=Effect.Kind.ONCE)
            case None | "":
                return queryset
            case _:
                return queryset.none()


class EffectChangeList(ChangeList):
    """The list of effects, without their results, which are large."""

    looks_back = False

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Effect]:
        found: QuerySet[Effect] = super().get_queryset(request, *args, **kwargs)
        # No index has these apart from the rest.
        self.looks_back = self.params.get("what") in ("answered", "once") and not self.query
        if self.looks_back:
            newest = self.root_queryset.order_by().aggregate(newest=Max("pk"))["newest"] or 0
            found = found.filter(pk__gt=newest - LOOK_BACK)
        return found.defer("result", "note")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = _with_job_status(self.result_list)
        self.full_result_count = self.result_count  # else the search says a number that may be the limit


def _with_job_status(effects: Iterable[Any]) -> list[Any]:
    """Return the effects, each with the status of its job, in one question for all: a page far back passes over many."""
    found = list(effects)
    ids = {effect.job_id for effect in found if effect.job_id is not None}
    statuses: dict[int, str] = {}
    for model in (ArchivedJob, Job):
        statuses.update(model._default_manager.using(jobs_alias()).filter(pk__in=ids).values_list("pk", "status"))
    for effect in found:
        effect.job_status = statuses.get(effect.job_id)
    return found


@admin.register(Effect)
class EffectAdmin(EffectActsAdmin):
    list_display = ("key_", "state", "when")
    list_filter = (WhatFilter,)
    ordering = ("-asked_at",)
    search_fields = ("key",)
    search_help_text = gettext_lazy("The key of an effect, all of it.")

    # The list.

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[EffectChangeList]:
        return EffectChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Effect], search_term: str
    ) -> tuple[QuerySet[Effect], bool]:
        term = search_term.strip()
        return (queryset.filter(kind__in=Effect.Kind.values, key=term) if term else queryset), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == WhatFilter.parameter_name  # others could ask for a look at every row

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        more = {"title": _("Effects"), "look_back": LOOK_BACK}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    @admin.display(description=gettext_lazy("key"))
    def key_(self, effect: Effect) -> str:
        return format_html('<span class="dj-name">{}</span>', effect.key)

    @admin.display(description=gettext_lazy("state and job"))
    def state(self, effect: Any) -> str:
        job = "" if effect.job_id is None else format_html(", {} {}", _("job"), _job(effect))
        where = effect.get_kind_display()
        return format_html('{}<div class="quiet dj-small">{}{}</div>', _badge(effect), where, job)

    @admin.display(description=gettext_lazy("when"))
    def when(self, effect: Any) -> str:
        return format_html_join("", '<div class="dj-when"><span class="quiet">{}</span> {}</div>', _moments(effect))

    # An effect's page.

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        effect = self.get_object(request, unquote(object_id))
        _with_job_status([effect] if effect is not None else [])
        if effect is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
        if not self.has_view_permission(request, effect):
            raise PermissionDenied
        open_ = _state(effect)[0] == "retry"
        context = {
            **self.admin_site.each_context(request),
            "title": _("Effect %s") % effect.key,
            "subtitle": None,
            "opts": self.opts,
            "original": effect,
            "media": self.media,
            "state": _badge(effect),
            "sentence": _sentence(effect),
            "may_say_yes": open_ and self.has_happened_permission(request),
            "may_say_no": open_ and self.has_did_not_happen_permission(request),
            "why_limit": WHY_LIMIT,
            "facts": list(_facts(effect)),
            "result": None if effect.result is None else shown.as_json(redact.value(effect.result)),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/effect/detail.html", context)


def _state(effect: Any) -> tuple[str, str]:
    """Return what is known of an effect, as a word for style sheets and in the words of people."""
    if effect.kind == Effect.Kind.ONCE:
        return "done", _("took place")
    if effect.answered_at is not None:
        return "done", _("answered")
    return ("running", _("job runs")) if effect.job_status == Job.Status.RUNNING else ("retry", _("may have happened"))


def _badge(effect: Any) -> str:
    return format_html('<span class="dj-state dj-state-{}">{}</span>', *_state(effect))


def _sentence(effect: Any) -> str:
    match _state(effect)[0], effect.kind:
        case "done", Effect.Kind.ONCE:
            return _("It was committed together with what it guards. A replay reads its result and does nothing.")
        case "done", _kind if effect.note:
            return _("Somebody looked and said that it happened. No run of its job asks again.")
        case "done", _kind:
            return _("The other side has answered. A replay reads the result and does not ask again.")
        case "running", _kind:
            return _("It was asked for, and its job runs now: it may be under way.")
        case _:
            return _("It was asked for, and no answer was seen. %s") % _what_comes(effect)


def _what_comes(effect: Any) -> str:
    if effect.job_id is None:
        return _("No job asked for it: whoever did may do so again, with the same key.")
    match effect.job_status:
        case None:
            return _("Its job is gone, so no run of it asks again.")
        case Job.Status.READY:
            return _("A next run of its job asks again, with the same key.")
        case status:
            word = Job.Status(status).label.lower()
            return (
                _("Its job is %s, so no run asks again; if somebody requeues it, one does, with the same key.") % word
            )


def _facts(effect: Any) -> Iterator[tuple[str, Any]]:
    yield _("key"), format_html('<span class="dj-call">{}</span>', effect.key)
    yield _("where"), effect.get_kind_display()
    yield _("job"), _job(effect)
    if effect.kind == Effect.Kind.ONCE:
        yield _("took place"), shown.moment(effect.asked_at, effect.clock)
        return
    yield _("times asked"), effect.asks
    yield _("asked last") if effect.asks > 1 else _("asked"), shown.moment(effect.asked_at, effect.clock)
    yield _("answered"), shown.moment(effect.answered_at, effect.clock)
    if effect.note:
        yield _("settled by"), redact.text(effect.note)


def _moments(effect: Any) -> Iterator[tuple[str, str]]:
    asked = shown.age(effect.asked_at, effect.clock)
    if effect.kind == Effect.Kind.ONCE:
        yield "", asked
        return
    yield _("asked") if effect.asks == 1 else _("asked %d times, last") % effect.asks, asked
    if effect.answered_at is not None:
        yield _("answered"), shown.age(effect.answered_at, effect.clock)


def _job(effect: Any) -> str:
    if effect.job_id is None:
        return shown.NOTHING
    if effect.job_status is None:
        return format_html('{} <span class="quiet">({})</span>', effect.job_id, _("gone"))
    return shown.job_link(effect.job_id)
