"""The form by which a person confirms an act upon all that a filter finds."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_jobs import bulk, checked
from django_jobs.admin.filters import known_queues
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.exceptions import InvalidJob
from django_jobs.models import BulkAct
from django_jobs.texts import lazily, of


class QueueInput(forms.TextInput):
    """Suggests the queues that are known."""

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        return format_html(
            '{}<datalist id="known-queues">{}</datalist>',
            super().render(name, value, {**(attrs or {}), "list": "known-queues"}, renderer),
            format_html_join("", '<option value="{}">', ((queue,) for queue in sorted(known_queues()))),
        )


def _queue(value: str) -> None:
    try:
        checked.queue(value)
    except InvalidJob as error:
        raise ValidationError(lazily(of(error))) from None


class BulkForm(forms.Form):
    """Asks for what the act needs. `token` is what makes one act of what is sent twice."""

    required_css_class = "required"
    token = forms.UUIDField(widget=forms.HiddenInput)
    queue = forms.CharField(
        label=_("To the queue"), max_length=100, validators=[_queue], widget=QueueInput(attrs={"class": "vTextField"})
    )
    with_keys = forms.BooleanField(
        label=_("Also jobs whose idempotency key must still hold"),
        required=False,
        help_text=_("They finished within IDEMPOTENCY_WINDOW: without them the same enqueue would run again."),
    )
    why = forms.CharField(
        label=_("Why"),
        max_length=WHY_LIMIT,
        widget=forms.TextInput(
            attrs={"class": "vTextField", "autofocus": True, "placeholder": _("needed, for the record")}
        ),
    )
    per_minute = forms.IntegerField(
        label=_("At most, a minute"),
        required=False,
        min_value=1,
        max_value=bulk.MOST_PER_MINUTE,
        widget=forms.NumberInput(attrs={"class": "vIntegerField"}),
        help_text=_("Empty: as fast as is good, some thousands a second."),
    )

    def __init__(self, act: str, data: Any = None) -> None:
        super().__init__(data, initial={"token": uuid4()})
        if act != BulkAct.Act.MOVE:
            del self.fields["queue"]
        if act != BulkAct.Act.DELETE:
            del self.fields["with_keys"]
