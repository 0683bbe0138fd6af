from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import checked, pausable, pauses
from django_jobs.admin import shown
from django_jobs.admin.addresses import address
from django_jobs.admin.nav import may_pause
from django_jobs.admin.paused_schedules import paused_schedules
from django_jobs.admin.pausing import ResumingAdmin, already, back_to, named, said
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, JobsError
from django_jobs.models import Pause
from django_jobs.models.clock import database_now
from django_jobs.texts import translated

if TYPE_CHECKING:
    _Form = forms.ModelForm[Pause]
else:
    _Form = forms.ModelForm


# How long a pause may last, without a time being written out: seconds, or until the next day of who asks begins.
TOMORROW = "tomorrow"
LASTS = (
    ("", gettext_lazy("until it is resumed")),
    ("900", gettext_lazy("15 minutes")),
    ("3600", gettext_lazy("1 hour")),
    ("14400", gettext_lazy("4 hours")),
    (TOMORROW, gettext_lazy("until tomorrow, 00:00")),
)


class NameInput(forms.TextInput):
    """Suggests the queues and types that are known."""

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        found = pausable.known()
        known = [(queue, _("queue")) for queue in sorted(found.queues)]
        known += [(type_, _("type")) for type_ in sorted(found.types)]
        return format_html(
            '{}<datalist id="known-names">{}</datalist>',
            super().render(name, value, {**(attrs or {}), "list": "known-names"}, renderer),
            format_html_join("", '<option value="{}">{}</option>', known),
        )


class Nevertheless(forms.CheckboxInput):
    """Confirms one name, or the end of one pause: ticked for another it says nothing."""

    def __init__(self, asked: str) -> None:
        super().__init__(check_test=lambda value: False)
        self.asked = asked

    def format_value(self, value: Any) -> str:
        return self.asked


class PauseForm(_Form):
    by: str
    paused: Pause
    lasts = forms.ChoiceField(
        label=gettext_lazy("For"), required=False, choices=LASTS, help_text=gettext_lazy("Or give a time below.")
    )
    # Not the model's field: its name may be there already, and is paused anew then.
    called = forms.CharField(
        label=gettext_lazy("Its name"),
        max_length=255,
        widget=NameInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy(
            "Of a queue, or of a type as the list of jobs shows it. Those that are known are suggested."
        ),
    )
    # Of a name that nothing has: which one it is that is meant all the same. Of one that is paused: which pause may go.
    nevertheless = forms.CharField(
        label=gettext_lazy("Pause it nevertheless"), required=False, widget=forms.HiddenInput
    )

    class Meta:
        model = Pause
        fields = ("kind", "until", "why")
        widgets = {"why": forms.TextInput(attrs={"class": "vTextField"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Here, for the zone is that of whose page it is.
        midnight = _tomorrow()
        lasts: Any = self.fields["lasts"]
        lasts.choices = [(key, f"{label} {midnight:%Z}" if key == TOMORROW else label) for key, label in LASTS]
        if "until" in self.fields:
            zone = timezone.get_current_timezone_name()
            self.fields["until"].help_text = _("Instead of a choice above. In the time zone %s.") % zone

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if values.get("until") and values.get("lasts"):
            self.add_error("until", _("Give this or a choice above, not both."))
        if {"kind", "called"} <= values.keys():
            self._refuse("called", self._check_name)
        if not self.errors and (doubt := self._doubt()):
            self.add_error("called", doubt)
        if not self.errors:
            # Done here: whether the time is past is known to the statement that stores it, and to nothing before.
            self._refuse("until", self._pause)
        return values

    def _refuse(self, field: str, step: Callable[[], None]) -> None:
        try:
            step()
        except JobsError as error:
            self.add_error(field, translated(error))

    def _check_name(self) -> None:
        if self.cleaned_data["kind"] == Pause.Kind.QUEUE:
            checked.queue(self.cleaned_data["called"])
        else:
            checked.text(self.cleaned_data["called"], "type")

    def _doubt(self) -> str:
        """Return what is to be asked of a name that is paused, or that nothing has; a confirmation is asked for then."""
        kind, name = self.cleaned_data["kind"], self.cleaned_data["called"]
        if (found := named(kind, name)) is not None:
            # What was said of it is what may be replaced: not what somebody has made of it meanwhile.
            if not self._is_asked(f"{kind} {name} {found.created_at.isoformat()}"):
                return ""
            self["nevertheless"].label = _("Replace that pause")
            return already(found)
        known = pausable.known()
        if name in known.of(kind) or not self._is_asked(f"{kind} {name}"):
            return ""
        return " ".join(_doubts(kind, name, known))

    def _is_asked(self, what: str) -> bool:
        """Ask for a confirmation of it, unless it is given."""
        if self.cleaned_data.get("nevertheless") == what:
            return False
        self.fields["nevertheless"].widget = Nevertheless(what)
        return True

    def _pause(self) -> None:
        values = self.cleaned_data
        what = {values["kind"]: values["called"]}
        until = values["until"] or _end(values.get("lasts", ""))
        self.paused = pauses.pause(**what, until=until, why=values["why"], by=self.by)


def _doubts(kind: str, name: str, known: pausable.Known) -> Iterator[str]:
    if kind == Pause.Kind.QUEUE:
        yield _("No queue is called %s.") % name
        other = _("A job type is called so: choose “type” above.") if name in known.types else ""
    else:
        yield _("No job type is called %s.") % name
        other = _("A queue is called so: choose “queue” above.") if name in known.queues else ""
    if other:
        yield other
    elif like := known.like(kind, name):
        yield _("Did you mean %s?") % ", ".join(like)


def _end(lasts: str) -> float | datetime | None:
    if lasts != TOMORROW:
        return float(lasts) if lasts else None
    return _tomorrow()


def _tomorrow() -> datetime:
    today = database_now(jobs_alias()).astimezone(timezone.get_current_timezone())
    day = (today + timedelta(days=1)).date()
    return datetime.combine(day, time(), timezone.get_current_timezone())


def _labelled(label: str, value: str) -> str:
    """Return a value with the name of its column, which narrow windows show beside it."""
    return format_html('<span data-label="{}">{}</span>', capfirst(label), value)


@admin.register(Pause)
class PauseAdmin(ResumingAdmin):
    """Pauses are added and deleted, by the functions for it; there is nothing to be changed in one."""

    form = PauseForm
    list_display = ("paused", "state", "why_", "by_", "since", "ends", "resume_")
    list_display_links = None
    ordering = ("kind", "name")
    actions = ["delete_selected"]

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        return self.list_display if may_pause(request) else self.list_display[:-1]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_pause(request)

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return may_pause(request)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return may_pause(request) or super().has_view_permission(request, obj)

    def response_post_save_add(self, request: HttpRequest, obj: Pause) -> HttpResponseRedirect:
        back = back_to(request, otherwise="")
        return HttpResponseRedirect(back) if back else super().response_post_save_add(request, obj)

    def get_fields(self, request: HttpRequest, obj: Pause | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("kind", "called", "nevertheless", "lasts", "until", "why")
        return ("kind", "name", "until", "why", "by", "created_at")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        found = {"title": _("Pauses"), "paused_schedules": paused_schedules(request)}
        return super().changelist_view(request, {**found, **(extra_context or {})})

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> type[PauseForm]:
        form: Any = super().get_form(request, *args, **kwargs)  # a class of this request's own
        form.by = request.user.get_username()
        return form  # type: ignore[no-any-return]

    def save_model(self, request: HttpRequest, obj: Pause, form: Any, change: bool) -> None:
        """Take over what the form has paused."""
        obj.pk, obj.name = form.paused.pk, form.paused.name

    def delete_model(self, request: HttpRequest, obj: Pause) -> None:
        try:
            pauses.resume(**{obj.kind: obj.name})
        except InvalidJob:  # made in SQL, of what no job can name
            obj.delete(using=obj._state.db)

    # Under the name of Django's own action, whose place it takes: to resume destroys nothing and needs no second page.
    @admin.action(description=gettext_lazy("Resume selected %(verbose_name_plural)s"), permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Pause]) -> None:
        ended = list(queryset)
        self.log_deletions(request, queryset)
        for found in ended:
            self.delete_model(request, found)
        messages.success(request, _("Resumed: %s.") % ", ".join(map(said, ended)))

    @admin.display(description=gettext_lazy("paused"))
    def paused(self, found: Pause) -> str:
        return format_html('{} <span class="dj-name"><strong>{}</strong></span>', found.get_kind_display(), found.name)

    @admin.display(description=gettext_lazy("state"))
    def state(self, found: Any) -> str:
        in_force = found.until is None or found.until > found.clock
        slug, word = ("paused", _("paused")) if in_force else ("over", _("over"))
        return format_html('<span class="dj-state dj-state-{}">{}</span>', slug, word)

    @admin.display(description=gettext_lazy("why"))
    def why_(self, found: Pause) -> str:
        return _labelled(_("why"), found.why or shown.NOTHING)

    @admin.display(description=gettext_lazy("by"))
    def by_(self, found: Pause) -> str:
        return _labelled(_("by"), found.by or shown.NOTHING)

    @admin.display(description=gettext_lazy("since"))
    def since(self, found: Any) -> str:
        return _labelled(_("since"), shown.age(found.created_at, found.clock))

    @admin.display(description=gettext_lazy("ends"))
    def ends(self, found: Any) -> str:
        when = _("when resumed") if found.until is None else shown.age(found.until, found.clock)
        return _labelled(_("ends"), when)

    @admin.display(description="")
    def resume_(self, found: Any) -> str:
        if found.until is not None and found.until <= found.clock:
            return ""
        return format_html(
            '<button type="submit" class="button" formaction="{}" name="pause" value="{} {}">{}</button>',
            address("django_jobs_pause_resume"), found.kind, found.name, _("Resume"),
        )  # fmt: skip
