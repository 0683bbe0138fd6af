"""Arguments that a person wrote in place of those of a job: looked at as those of an enqueue, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db.models import Func, JSONField, TextField, Value

from django_jobs import payload, redact, registry
from django_jobs.conf import conf
from django_jobs.exceptions import InvalidJob, shown
from django_jobs.models.record import JobRecord
from django_jobs.queue.arguments import payload_of
from django_jobs.texts import Text
from django_jobs.texts import text as _

NAMES_LIMIT = 300


class Edited(NamedTuple):
    """Arguments as they are stored, and which of them are others than before, by their places or names."""

    text: str
    names: tuple[str, ...]

    @property
    def what(self) -> Text:
        return _("arguments %s", payload.storable(", ".join(self.names), NAMES_LIMIT))


class Stored(Func):
    """Arguments as an UPDATE stores them: in the very words of an enqueue."""

    output_field = JSONField()

    def __init__(self, text: str) -> None:
        super().__init__(Value(text, output_field=TextField()))

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(%(expressions)s)::jsonb", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="%(expressions)s", **extra)


def edited(job: JobRecord, given: Any) -> Edited:
    """Return arguments for a job in place of its own; raise InvalidJob or InvalidJobType unless its type takes them.

    `given` is `{"args": [...], "kwargs": {...}}`.
    """
    job_type = registry.find(job.type)
    if job_type is None:
        raise InvalidJob(
            _(
                "The type %(type)r is not known to this process, which cannot tell what arguments it takes.",
                type=job.type,
            )
        )
    match given:
        case {"args": list() as args, "kwargs": dict() as kwargs, **others} if not others:
            text = payload_of(job_type, tuple(args), kwargs, conf().max_payload_bytes)
        case other:
            raise InvalidJob(
                _('The arguments are %(value)s; give {"args": [...], "kwargs": {...}}.', value=shown(other))
            )
    return Edited(text, tuple(_others(job.payload, json.loads(text))))


def _others(before: Any, after: dict[str, Any]) -> Iterator[str]:
    old, new = _named(before), _named(after)
    for name in sorted({**old, **new}, key=lambda name: (not name.isdigit(), len(name) * name.isdigit(), name)):
        if name not in old or name not in new or not payload.same(*map(payload.dump, (old[name], new[name]))):
            yield name


def _named(given: Any) -> dict[str, Any]:
    match given:
        case {"args": list() as args, "kwargs": dict() as kwargs}:
            return {**{str(place): value for place, value in enumerate(args, 1)}, **kwargs}
    return {"as a whole": given}


def restored(type_name: str, given: Any, stored: Any) -> Any:
    """Return arguments in which each mark of what was masked is again what the stored ones have there.

    Raises InvalidJob where a mark stands for nothing: at a place that was not masked, or in a list whose items were moved.
    """
    match given, stored:
        case {"args": list() as new, "kwargs": dict() as named}, {"args": list() as old, "kwargs": dict() as old_named}:
            names = redact.names(type_name, max(len(new), len(old)))
            if len(new) != len(old):  # which of those that share a name were left out is not known
                names = [name if names.count(name) == 1 else "" for name in names]
            placed = [
                _one(item, old[place : place + 1], names[place], _("argument %d", place + 1))
                for place, item in enumerate(new)
            ]
            return {"args": placed, "kwargs": _restored(named, old_named, "")}
    return given


def _restored(given: Any, stored: Any, where: str) -> Any:
    if isinstance(given, dict):
        others = stored if isinstance(stored, dict) else {}
        return {
            name: _one(
                item, [others[name]] if name in others else [], name, f"{where}[{name!r}]" if where else repr(name)
            )
            for name, item in given.items()
        }
    if isinstance(given, list):
        _refuse_moved(given, stored, where)
        items = stored if isinstance(stored, list) else []
        return [_one(item, items[place : place + 1], "", f"{where}[{place}]") for place, item in enumerate(given)]
    return given


def _one(given: Any, stored: list[Any], name: str, where: str) -> Any:
    """Return what stands for an item; `stored` holds the one that was there, if there was any."""
    if given != redact.MARK:
        return _restored(given, stored[0] if stored else None, where)
    if stored and (redact.hides(name) or stored[0] == redact.MARK):
        return stored[0]
    raise InvalidJob(
        _(
            "%(where)s is %(mark)s, which stands for what was masked there, and nothing was; write the value.",
            where=where,
            mark=redact.MARK,
        )
    )


def _refuse_moved(given: list[Any], stored: Any, where: str) -> None:
    if redact.MARK not in payload.dump(given):
        return
    masked = redact.value(stored)
    same_length = isinstance(masked, list) and len(masked) == len(given)
    if not same_length or any(item != masked[place] and item in masked for place, item in enumerate(given)):
        raise InvalidJob(
            _(
                "%(where)s has %(mark)s in a list whose items were moved, added or left out: what each stands for is not "
                "known. Write the values.",
                where=where,
                mark=redact.MARK,
            )
        )
