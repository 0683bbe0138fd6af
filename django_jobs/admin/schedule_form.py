"""The form of a schedule: its arguments as JSON, its durations as people write them. The model says what is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_jobs import durations, redact
from django_jobs.admin.filters import known_queues, known_types
from django_jobs.exceptions import InvalidJob
from django_jobs.models.schedule import Schedule
from django_jobs.queue.edited import restored
from django_jobs.schedules import definition, fields, overrides
from django_jobs.texts import translated

if TYPE_CHECKING:
    _Form = forms.ModelForm[Schedule]
else:
    _Form = forms.ModelForm

DURATIONS = tuple(fields.DURATIONS)
# The payload in two parts, which are fields of the form alone.
FIELDS = ("name", *(name for name in overrides.FIELDS if name != "payload"))
ARGUMENTS = ("args", "kwargs")


def label(name: str) -> str:
    field: Any = Schedule._meta.get_field(name)
    return str(field.verbose_name)


@lru_cache(maxsize=1)
def known_zones() -> tuple[str, ...]:
    return tuple(sorted(available_timezones() - {"Factory", "localtime"}))


class Suggesting(forms.TextInput):
    """Suggests what is known; anything may be written."""

    def __init__(self, known: Callable[[], Iterable[str]], attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"class": "vTextField", "autocomplete": "off", **(attrs or {})})
        self.known = known

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        options = ((found,) for found in sorted(self.known()))
        return format_html(
            '{}<datalist id="known-{}">{}</datalist>',
            super().render(name, value, {**(attrs or {}), "list": f"known-{name}"}, renderer),
            name,
            format_html_join("", '<option value="{}"></option>', options),
        )


class DurationField(forms.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "widget": forms.TextInput(attrs={"class": "dj-duration", "size": 12})})

    def prepare_value(self, value: Any) -> Any:
        return durations.written(value) if isinstance(value, timedelta) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        seconds = durations.seconds(text)
        try:
            if seconds is not None:
                return timedelta(seconds=seconds)
        except OverflowError:
            pass
        raise ValidationError(
            gettext("%(text)r: give seconds, or a number with s, m, h or d, as 90, 30m or 7d (ten years at most).")
            % {"text": text[:80]}
        )


class ArgumentsField(forms.Field):
    """JSON of one kind; empty text is an empty one."""

    def __init__(self, kind: type, example: Any, **kwargs: Any) -> None:
        attrs = {"class": "vLargeTextField dj-json", "rows": 2, "spellcheck": "false"}
        super().__init__(required=False, widget=forms.Textarea(attrs=attrs), **kwargs)
        self.kind = kind
        self.example = example

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        try:
            found = json.loads(text) if text else self.kind()
        except json.JSONDecodeError as error:
            said = gettext("This is not JSON: %(problem)s. Give %(example)s.")
            raise ValidationError(said % {"problem": error, "example": self.example}) from None
        except (ValueError, RecursionError):  # a number of thousands of digits, or as many brackets
            raise ValidationError(gettext("This JSON cannot be read. Give %s.") % self.example) from None
        if not isinstance(found, self.kind):
            raise ValidationError(gettext("Give %s.") % self.example)
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return json.dumps(initial) != json.dumps(self.to_python(data))
        except ValidationError:
            return True


class ScheduleForm(_Form):
    args = ArgumentsField(
        list,
        _('a JSON list, as [17, "mail"]'),
        label=_("Positional arguments"),
        help_text=_('A JSON list, as <code>[17, "mail"]</code>. Empty: none.'),
    )
    kwargs = ArgumentsField(
        dict,
        _('a JSON object, as {"limit": 10}'),
        label=_("Keyword arguments"),
        help_text=_('A JSON object, as <code>{"limit": 10}</code>. Empty: none.'),
    )

    class Meta:
        model = Schedule
        fields = FIELDS
        field_classes = dict.fromkeys(DURATIONS, DurationField)
        widgets = {
            "type": Suggesting(known_types),
            "timezone": Suggesting(known_zones),
            "queue": Suggesting(known_queues),
            "expression": forms.TextInput(
                attrs={"class": "vTextField dj-code", "autocomplete": "off", "spellcheck": "false"}
            ),
        }
        help_texts = {
            "name": _("It is part of the keys of its jobs, and stays as it is once stored."),
            "type": _("What is run, as the list of jobs shows it. Those known here or to a worker are suggested."),
            "expression": _(
                "Minute, hour, day of month, month, day of week, as <code>30 2 * * 1-5</code>; or <code>@hourly</code>, "
                "<code>@daily</code>, <code>@weekly</code>, <code>@monthly</code>, <code>@yearly</code>. Empty for an interval."
            ),
            "every": _(
                "Instead of an expression: seconds, or <code>90s</code>, <code>30m</code>, <code>12h</code>, <code>7d</code>. "
                "It counts in real time, whatever the clocks do."
            ),
            "timezone": _("A name of the IANA database, as <code>Europe/Berlin</code>."),
            "missed": _("When no scheduler ran at the time."),
            "missed_grace": _("Empty: as the setting MISSED_GRACE says. What comes earlier simply runs."),
            "missed_limit": _("Of those that are run for each: the newest so many."),
            "missed_window": _("Empty: at no age."),
            "overlap": _("When the job of an earlier slot still waits or runs."),
            "spread": _("Jobs are due a part of this after their slots, always the same part. Empty: at once."),
            "queue": _("Empty: as the job says."),
            "priority": _("From -100 to 100, higher is sooner. Empty: as the job says."),
            "enabled": _("Else it is paused, and makes no jobs until it is resumed."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # As they were stored, by the type that they were stored for.
        self.stored = (self.instance.type, self.instance.payload)
        for name, value in masked_parts(self.instance).items():
            self.initial.setdefault(name, value)
            if name in self.fields and redact.MARK in json.dumps(value, ensure_ascii=False):
                kept = _("••• stands for a value that is masked; leave it to keep the value.")
                self.fields[name].help_text = f"{self.fields[name].help_text} {kept}"
        if "timezone" in self.fields:
            # Else Django sends the default along and takes that for what was stored.
            self.fields["timezone"].show_hidden_initial = False

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if values.keys() >= {*ARGUMENTS}:
            found = {name: self._restored(name, values[name]) for name in ARGUMENTS}
            if self.errors.keys().isdisjoint(ARGUMENTS):
                self.instance.payload = found
        return values

    def _restored(self, name: str, given: Any) -> Any:
        """Return arguments in which each mark is again what it stands for."""
        job_type, payload = self.stored
        try:
            return restored(job_type, {**parts(None), name: given}, payload)[name]
        except InvalidJob as error:
            self.add_error(name, translated(error))

    def _update_errors(self, errors: ValidationError) -> None:
        """Take over what the model finds wrong, at the field where it can be put right."""
        placed: dict[str, list[ValidationError]] = {}
        for field, found in errors.error_dict.items():
            if (place := self._place(field, found)) is not None:
                placed.setdefault(place, []).extend(found)
        if placed:
            super()._update_errors(ValidationError(placed))  # type: ignore[misc]

    def _place(self, field: str, found: list[ValidationError]) -> str | None:
        """Return where an error belongs; nowhere where the form itself has found the text unusable."""
        if field == "payload":
            return None if not self.errors.keys().isdisjoint(ARGUMENTS) else self._argument_at_fault(found)
        if field in self.errors or (field == "expression" and "every" in self.errors and not self.instance.expression):
            return None
        return field if field in self.fields else NON_FIELD_ERRORS

    def _argument_at_fault(self, found: list[ValidationError]) -> str:
        without = copy.copy(self.instance)
        without.payload = {**self.instance.payload, "kwargs": {}}
        said = [text for error in found for text in error.messages]
        return "args" if [*map(translated, definition.faults(without).get("payload", []))] == said else "kwargs"


def masked_parts(schedule: Schedule) -> dict[str, Any]:
    """Return the arguments of a schedule as they may be shown."""
    return parts(redact.arguments(schedule.type, schedule.payload))


def parts(payload: Any) -> dict[str, Any]:
    """Return the arguments of a payload; of one that is none, what can be kept of it."""
    given = payload if isinstance(payload, dict) else {}
    args, kwargs = given.get("args"), given.get("kwargs")
    return {"args": args if isinstance(args, list) else [], "kwargs": kwargs if isinstance(kwargs, dict) else {}}
