"""Every address of our pages, found in the project's URLs, and one row of each model to ask it for.

A page that is added is found by itself, if its name begins with `django_jobs_`. Where a page needs what is not here, the
tests say so: give GIVEN what the rows of its model need, or ARGUMENTS what its address does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib.admin import site as admin_site
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.db import models
from django.db.models.functions import Now
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from django_jobs.engines.archive import archive
from tests.app.jobs import nothing

NAMED = "django_jobs_"
INDEX = "app_list"
NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
LINE = ("run", "cause", "error", "worker", "seconds", "at")
# What a row of a model needs beside what `row` gives it.
GIVEN: dict[str, dict[str, Any]] = {
    "job": {"parked": None, "locked_by": None, "locked_until": None, "finished_at": None, "expires_at": None},
    "archivedjob": {"id": 900_000, "status": "dead", "requeued_as": None, "archived_at": Now()},
    "deployment": {"id": 1},
    "effect": {"kind": "outside", "answered_at": None},
    "schedule": {"type": nothing.name, "expression": "30 2 * * *", "every": None, "timezone": "UTC", "anchor": None},
    "schedulestate": {},
    "stat": {"runs": [1], "waits": [1]},
}
# Of arguments that name no row.
ARGUMENTS: dict[str, Any] = {"app_label": "django_jobs"}


@dataclass(frozen=True, slots=True)
class Address:
    name: str
    namespaces: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name.removeprefix(NAMED), *self.parameters])

    @property
    def model(self) -> str:
        """Return the name of the model that the page is of, if it is of one."""
        found = self.name.removeprefix(NAMED).partition("_")[0]
        return found if found in apps.all_models["django_jobs"] else ""

    def url(self, rows: dict[str, Any]) -> str:
        values = {name: self._value(name, rows) for name in self.parameters}
        return reverse(":".join([*self.namespaces, self.name]), kwargs=values)

    def _value(self, parameter: str, rows: dict[str, Any]) -> Any:
        if parameter in ARGUMENTS:
            return ARGUMENTS[parameter]
        model = self.model or parameter.removesuffix("_id")
        assert model in rows, f"Say in {__name__} what {parameter} of {self.name} is."
        return quote(rows[model].pk)


def addresses() -> list[Address]:
    """Return what the project's URLs have of ours, the app's index first."""
    found = sorted(_addresses(get_resolver()), key=lambda address: (address.name != INDEX, address.name))
    assert found[0].name == INDEX
    assert len(found) > 40
    return found


def _addresses(resolver: URLResolver, namespaces: tuple[str, ...] = ()) -> Iterator[Address]:
    for entry in resolver.url_patterns:
        match entry:
            case URLResolver():
                yield from _addresses(entry, (*namespaces, *([entry.namespace] if entry.namespace else [])))
            case URLPattern() if (entry.name or "").startswith(NAMED) or entry.name == INDEX:
                yield Address(str(entry.name), namespaces, tuple(entry.pattern.regex.groupindex))


def rows(alias: str, text: str = "x", **given: Any) -> dict[str, Any]:
    """Return a row of each of our models by the model's name, every text of it being `text`, or ending in it."""
    archive(alias).prepare()
    found: dict[str, Any] = {}
    for model in sorted(apps.get_app_config("django_jobs").get_models(), key=lambda model: model.__name__):
        name = str(model._meta.model_name)
        if model._meta.managed and name != "schedulestate":
            found[name] = row(model, alias, text, **given.get(name, {}))
    return found


def row(model: type[models.Model], alias: str, text: str, **given: Any) -> Any:
    """Return a stored row of a model, all of whose columns are filled."""
    given = GIVEN.get(str(model._meta.model_name), {}) | given
    fields = [field for field in model._meta.concrete_fields if field.name not in given]
    values = {field.name: _filled(field, text) for field in fields if not isinstance(field, models.BigAutoField)}
    made = model(**values, **given)
    made.save_base(using=alias, force_insert=True)  # past the checks of `save`: rows are written by other hands too
    if (state := apps.all_models["django_jobs"].get(f"{model._meta.model_name}state")) is not None:
        key = state._meta.pk.attname
        states = state._default_manager.using(alias)
        kept = {field.name: _filled(field, text) for field in state._meta.concrete_fields if not field.primary_key}
        states.update_or_create(kept, **{key: made.pk})
    return made


def _filled(field: models.Field[Any, Any], text: str) -> Any:
    if field.choices:
        return next(iter(dict(field.flatchoices)))
    match field:
        case models.JSONField():
            return _json(field.name, text)
        case models.CharField():
            return text[-field.max_length :] if field.max_length else text
        case models.TextField():
            return f"Traceback (most recent call last):\n  File {text}\nValueError: {text}"
        case models.DateTimeField():
            return NOW
        case models.DurationField():
            return timedelta(seconds=60)
        case models.BooleanField():
            return True
        case _:
            return 1


def _json(name: str, text: str) -> Any:
    match name:
        case "payload":
            return {"args": [text, [text]], "kwargs": {text: {text: text}}}
        case "history":
            return [dict.fromkeys(LINE, text), {**dict.fromkeys(LINE, text), "run": 1, "at": "2026-07-01T12:00:00Z"}]
        case "progress":
            return {"done": 1, "total": 2, "note": text}
        case "meta":
            return {"tags": [text], text: text, "requeued_from": 1}
        case "sought":
            return {"queue": text, "type": text}
        case "refusals":
            return [[1, text]]
        case "queues" | "types":
            return [text]
        case _:
            return {text: [text, {text: text}]}


def acts(address: Address) -> list[str]:
    """Return the names of the acts that may be asked for at an address: those that a list offers, else the page's own."""
    if not address.name.endswith("_changelist") or not address.model:
        return [""]
    (admin,) = (admin for model, admin in admin_site._registry.items() if _is(model, address.model))
    return sorted({*(str(getattr(name, "__name__", name)) for name in admin.actions or ()), "delete_selected"})


def _is(model: type[models.Model], name: str) -> bool:
    return (model._meta.app_label, model._meta.model_name) == ("django_jobs", name)


def form(act: str, address: Address, rows: dict[str, Any]) -> dict[str, Any]:
    """Return what a person sends who means it: an act on the ticked rows of a list, confirmed, or on the page's row."""
    ticked = [rows[address.model].pk] if address.model in rows else []
    sure = {"confirmed": "yes", "post": "yes", "why": "tried by its address"}
    return {"action": act, "index": "0", "select_across": "0", "_selected_action": ticked, **sure}


def stored(alias: str) -> dict[str, list[Any]]:
    """Return all that our tables and Django's log hold."""
    found: dict[str, Any] = {"log": list(LogEntry.objects.order_by("pk").values())}
    for model in apps.get_app_config("django_jobs").get_models():
        found[str(model._meta.model_name)] = list(model._base_manager.using(alias).order_by("pk").values())
    return found
