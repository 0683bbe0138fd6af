"""The form in which a person gives a job other arguments and, while it waits, another priority or due time.

What is masked is so here as well: its mark stands for what was there.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import redact, registry
from django_jobs.admin.why import WHY_LIMIT
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models.record import JobRecord
from django_jobs.queue.edited import Edited, edited, restored
from django_jobs.queue.seen import version
from django_jobs.texts import translated


class ArgumentsForm(forms.Form):
    args = forms.CharField(label=gettext_lazy("Positional arguments"), strip=False)
    kwargs = forms.CharField(label=gettext_lazy("Keyword arguments"), strip=False)
    why = forms.CharField(label=gettext_lazy("Why"), required=False, max_length=WHY_LIMIT)
    as_seen = forms.CharField(widget=forms.HiddenInput)

    # What is to be stored, if it is other than what is.
    payload: dict[str, Any] | None = None
    new: Edited | None = None

    def __init__(self, job: JobRecord, data: Any = None) -> None:
        self.job = job
        self.job_type = registry.find(job.type)
        self.masked = redact.arguments(job.type, job.payload)
        super().__init__(data, initial=self.initial_of(job))
        for name in ("args", "kwargs"):
            rows = min(max(str(self.initial[name]).count("\n") + 2, 3), 24)
            attributes = {
                "rows": rows,
                "class": "vLargeTextField dj-json",
                "spellcheck": "false",
                "autocomplete": "off",
            }
            self.fields[name].widget = forms.Textarea(attributes)
            self.fields[name].disabled = self.job_type is None
        self.fields["why"].widget.attrs |= {"class": "vTextField", "placeholder": _("for the record, if you like")}

    def initial_of(self, job: JobRecord) -> dict[str, Any]:
        args, kwargs = _parts(self.masked)
        return {"args": _written(args), "kwargs": _written(kwargs), "as_seen": version(job)}

    def clean_args(self) -> Any:
        return _read(self.cleaned_data["args"], list, _('Give a JSON list, as [17, "eva"]; [] for none.'))

    def clean_kwargs(self) -> Any:
        return _read(self.cleaned_data["kwargs"], dict, _('Give a JSON object, as {"color": "red"}; {} for none.'))

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = self.cleaned_data
        if self.job_type is None or "args" not in values or "kwargs" not in values:
            return values
        given = {"args": values["args"], "kwargs": values["kwargs"]}
        if (given["args"], given["kwargs"]) != _parts(self.masked) or not isinstance(self.masked, dict):
            try:
                found = restored(self.job.type, given, self.job.payload)
                self.new = edited(self.job, found)
            except (InvalidJob, InvalidJobType) as error:
                said, unchanged = translated(error.fault), _("Nothing was changed.")
                raise ValidationError(f"{said} {unchanged}" if said else translated(error)) from None
            self.payload = found
        return values


class WaitingForm(ArgumentsForm):
    """The same of a job that waits."""

    priority = forms.IntegerField(label=gettext_lazy("Priority"), min_value=-100, max_value=100)
    run_at = forms.DateTimeField(
        label=gettext_lazy("Due at"),
        widget=forms.DateTimeInput({"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    field_order = ("args", "kwargs", "priority", "run_at", "why")

    def initial_of(self, job: JobRecord) -> dict[str, Any]:
        return {
            **super().initial_of(job),
            "priority": job.priority,
            "run_at": job.run_at,
        }

    def wanted(self) -> dict[str, Any]:
        """Return what is to be other than it is, as `edit` takes it."""
        found: dict[str, Any] = {
            name: self.cleaned_data[name] for name in ("priority", "run_at") if name in self.changed_data
        }
        return found | ({} if self.payload is None else {"payload": self.payload})


def _parts(payload: Any) -> tuple[list[Any], dict[str, Any]]:
    match payload:
        case {"args": list() as args, "kwargs": dict() as kwargs}:
            return args, kwargs
    return [], {}


def _written(value: Any) -> str:
    """Return JSON to be edited: in one line while it is short."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= 60 else json.dumps(value, ensure_ascii=False, indent=2)


def _read(text: str, kind: type, wanted: str) -> Any:
    try:
        found = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        said = _("It is nested too deep.") if isinstance(error, RecursionError) else str(error)
        raise ValidationError(f"{wanted} {said}") from None
    if not isinstance(found, kind):
        raise ValidationError(wanted)
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        raise ValueError(_("%r stands there twice.") % next(name for name in names if names.count(name) > 1))
    return found


def _no_number(word: str) -> Any:
    raise ValueError(_("%s is no JSON.") % word)
