"""Acts of people, each recorded with its why: what those upon jobs and those upon schedules have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME, ActionForm
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin.base import QueueAdmin
from django_jobs.queue.sought import numbered
from django_jobs.texts import foreign

WHY_LIMIT = 300


class WhyForm(ActionForm):
    why = forms.CharField(label=gettext_lazy("Why:"), required=False, max_length=WHY_LIMIT)


class WhyAdmin(QueueAdmin):
    action_form = WhyForm

    def may(self, request: HttpRequest, act: str) -> bool:
        codename = get_permission_codename(act, self.opts)
        return request.user.has_perm(f"{self.opts.app_label}.{codename}") and self.has_view_permission(request)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        try:
            WhyForm.base_fields["why"].clean(request.POST.get("why", ""))
        except ValidationError as error:  # Django would say of any fault of the form that no action was selected
            messages.error(request, f"{_('Why:')} {' '.join(error.messages)}")
            return None
        return super().response_action(request, queryset, *args, **kwargs)


def recorded(what: Callable[[], str], why: str) -> str:
    """Return what was done as the log keeps it: in English, since others read it than who did it."""
    said = foreign(what)
    return f"{said}: {why}" if why else f"{said}."


def ticked(request: HttpRequest) -> list[int]:
    """Return the ids of the rows that were ticked on a list."""
    return sorted({found for text in request.POST.getlist(ACTION_CHECKBOX_NAME) for found in numbered(text)})


def is_asked(request: HttpRequest, act: str) -> bool:
    """Tell whether an act upon the rows that were ticked is asked for on a list."""
    match = request.resolver_match
    return act in request.POST.getlist("action") and match is not None and not match.kwargs


def why_of(request: HttpRequest) -> str:
    return request.POST.get("why", "").replace("\x00", "").strip()[:WHY_LIMIT]
