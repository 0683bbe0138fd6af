"""What a person says of effects that may have happened, on the list and on an effect's page, each recorded with its why."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin import bounded
from django_jobs.admin.addresses import address
from django_jobs.admin.bounded import TooSlow
from django_jobs.admin.why import WHY_LIMIT, WhyAdmin, is_asked, recorded, why_of
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import StateConflict
from django_jobs.models import Effect
from django_jobs.queue import effects
from django_jobs.texts import translated


class EffectActsAdmin(WhyAdmin):
    actions = ["happened", "did_not_happen"]

    def has_happened_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "change")

    def has_did_not_happen_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "delete")

    # On the list.

    def acts_one_by_one(self, request: HttpRequest) -> bool:
        return is_asked(request, "happened") or (is_asked(request, "did_not_happen") and "confirmed" in request.POST)

    @admin.action(description=gettext_lazy("Say of selected ones: it happened"), permissions=["happened"])
    def happened(self, request: HttpRequest, queryset: QuerySet[Effect]) -> None:
        self._settle(request, "happened", _ids(queryset))

    @admin.action(description=gettext_lazy("Say of selected ones: it did not happen"), permissions=["did_not_happen"])
    def did_not_happen(self, request: HttpRequest, queryset: QuerySet[Effect]) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return self._confirmation(request, queryset)
        self._settle(request, "did_not_happen", _ids(queryset))
        return None

    def _confirmation(self, request: HttpRequest, queryset: QuerySet[Effect]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Did these not happen?"),
            "opts": self.opts,
            "media": self.media,
            "rows": queryset.defer("result"),
            "why": why_of(request),
            "why_limit": WHY_LIMIT,
            "checkbox": ACTION_CHECKBOX_NAME,
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "admin/django_jobs/effect/did_not_happen.html", context)

    # On an effect's page.

    def get_urls(self) -> list[URLPattern]:
        def at(act: str) -> URLPattern:
            view = self.admin_site.admin_view(self.act_view)
            return path(
                f"<int:effect_id>/{act.replace('_', '-')}/", view, {"act": act}, name=f"django_jobs_effect_{act}"
            )

        return [at("happened"), at("did_not_happen"), *super().get_urls()]

    def act_view(self, request: HttpRequest, effect_id: int, act: str) -> HttpResponse:
        if not getattr(self, f"has_{act}_permission")(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._settle(request, act, [effect_id])
        there = Effect.objects.using(jobs_alias()).filter(pk=effect_id).exists()
        return HttpResponseRedirect(
            address("django_jobs_effect_change", effect_id) if there else address("django_jobs_effect_changelist")
        )

    # Both.

    def _settle(self, request: HttpRequest, act: str, ids: list[int]) -> None:
        """Do it to one effect after the other, and say what became of each."""
        for place, effect_id in enumerate(ids):
            try:
                found = self._settle_one(request, act, effect_id)
            except TooSlow:
                messages.error(request, bounded.said(ids[place:]))
                break
            except StateConflict as conflict:
                messages.warning(request, translated(conflict))
            else:
                messages.success(request, _said(act) % found.key)

    def _settle_one(self, request: HttpRequest, act: str, effect_id: int) -> Effect:
        """Settle one; where they share a database, its record in the log becomes true with the act."""
        given: dict[str, Any] = {
            "seen": _seen(request, effect_id),
            "why": why_of(request),
            "by": request.user.get_username(),
        }
        with bounded.bounded_act():
            if act == "happened":
                found, flag = effects.happened(effect_id, **given), CHANGE
            else:
                found, flag = effects.did_not_happen(effect_id, **given), DELETION
            assert request.user.pk is not None
            said = recorded(lambda: _("It happened") if flag == CHANGE else _("It did not happen"), given["why"])
            LogEntry.objects.log_actions(request.user.pk, [found], flag, change_message=said, single_object=True)
        return found


def _ids(queryset: QuerySet[Effect]) -> list[int]:
    with bounded.bounded(seconds=bounded.acting_seconds()):
        return sorted(queryset.values_list("pk", flat=True))


def _seen(request: HttpRequest, effect_id: int) -> int | None:
    """Return how often the effect had been asked for when the person looked at it, if a page with that number was sent."""
    seen = request.POST.get(f"asks-{effect_id}", "")
    return int(seen) if seen.isdecimal() else None


def _said(act: str) -> str:
    if act == "happened":
        return _("Recorded that %r happened: no run of its job asks again.")
    return _("Deleted the record of %r: the next run of its job asks as if for the first time.")
