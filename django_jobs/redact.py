"""What is shown of values that must not be seen: those under the names of the setting REDACT. The rows keep them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django_jobs import registry
from django_jobs.conf import conf
from django_jobs.models.record import JobRecord
from django_jobs.redacted_text import Span, spans

MARK = "•••"
# A shorter secret is in too many words.
SHORTEST_SECRET = 4
# Of a job with more of them no text is shown: looking for each would take too long.
MOST_SECRETS = 1000
# Deeper than anything that enqueue stores.
DEPTH_LIMIT = 200
_BEFORE_ITEMS = re.compile(r'\s*{"args": ?\[')
_BETWEEN_ITEMS = re.compile(r"\s*,\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What may be shown of a row whose values or texts may be secret. `secrets` are what was found in its arguments."""

    payload: Any
    result: Any
    progress: Any
    history: Any
    meta: Any
    last_error: str
    cancel_reason: str | None
    secrets: tuple[str, ...]


def job(row: JobRecord) -> Shown:
    """Return what may be shown of a job: masked by name, and in its texts also whatever is masked in its arguments."""
    found = secrets(row.type, row.payload)
    return Shown(
        payload=arguments(row.type, row.payload),
        result=value(row.result),
        progress=texts(row.progress, found),
        history=texts(row.history, found),
        meta=value(row.meta),
        last_error=text(row.last_error, found),
        cancel_reason=None if row.cancel_reason is None else text(row.cancel_reason, found),
        secrets=found,
    )


def hides(name: str) -> bool:
    """Tell whether what has this name is not to be shown: whether a part of it, in any case, is in REDACT."""
    lower = name.lower()
    return any(word in lower for word in conf().redact)


def value(given: Any) -> Any:
    """Return a JSON value in which all that mappings have under names of REDACT, at any depth, is the mark."""
    return _masked(given, []) if conf().redact else given


def arguments(type_name: str, payload: Any) -> Any:
    """Return a stored payload masked by the names of its arguments; places have those of the registered signature.

    Of a type that is not registered here only keyword arguments and mappings are known by name.
    """
    return _masked_call(type_name, payload, []) if conf().redact else payload


def secrets(type_name: str, payload: Any) -> tuple[str, ...]:
    """Return the texts and numbers that `arguments` masks, or `call_text` where `payload` is the text of one that was cut."""
    if not conf().redact:
        return ()
    hidden: list[Any] = []
    if isinstance(payload, str):
        _masked_text(type_name, payload, hidden)
    else:
        _masked_call(type_name, payload, hidden)
    return tuple(dict.fromkeys(_atoms(hidden)))


def text(given: str, secrets: Iterable[str] = ()) -> str:
    """Return free text without the secrets given, and without what it says after names of REDACT.

    That is `name=value`, `name: value` and the same with quotes around either, as errors and reprs have it.
    """
    words = conf().redact
    if not words or not given:
        return given
    found = tuple(secrets)
    if len(found) > MOST_SECRETS:
        return MARK
    for secret in spelled(found):
        given = given.replace(secret, MARK)
    return without(given, spans(given, words))


def texts(given: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON value masked as `value` does, and each text in it as `text` does."""
    found = tuple(secrets)
    if isinstance(given, str):
        return text(given, found)
    if isinstance(given, list):
        return [texts(item, found) for item in given]
    if isinstance(given, dict):
        return {name: MARK if hides(name) else texts(item, found) for name, item in given.items()}
    return given


def call_text(beginning: str, type_name: str = "") -> str:
    """Return the beginning of a stored payload, which may be cut anywhere, masked as `arguments` does; still JSON if it was."""
    return _masked_text(type_name, beginning, []) if conf().redact else beginning


def _masked(given: Any, hidden: list[Any], depth: int = 0) -> Any:
    if depth > DEPTH_LIMIT:
        return MARK
    if isinstance(given, list):
        return [_masked(item, hidden, depth + 1) for item in given]
    if isinstance(given, dict):
        return {
            name: _hidden(item, hidden) if hides(name) else _masked(item, hidden, depth + 1)
            for name, item in given.items()
        }
    return given


def _hidden(given: Any, hidden: list[Any]) -> str:
    hidden.append(given)
    return MARK


def _masked_call(type_name: str, payload: Any, hidden: list[Any]) -> Any:
    match payload:
        case {"args": list() as args, **others}:
            of_places = names(type_name, len(args))
            placed = [
                _hidden(item, hidden) if hides(name) else _masked(item, hidden)
                for name, item in zip(of_places, args, strict=True)
            ]
            return {"args": placed, **_masked(others, hidden)}
    return _masked(payload, hidden)


def names(type_name: str, number: int) -> list[str]:
    """Return the names of the parameters that take arguments by their place; empty ones where they are not known."""
    found = registry.find(type_name)
    if found is None:
        return [""] * number
    by_place = list(found.shape.by_place[:number])
    rest = [item.name for item in found.signature.parameters.values() if item.kind is item.VAR_POSITIONAL]
    return by_place + (rest or [""]) * (number - len(by_place))


def _masked_text(type_name: str, payload: str, hidden: list[Any]) -> str:
    try:
        return json.dumps(_masked_call(type_name, json.loads(payload), hidden), ensure_ascii=False)
    except (ValueError, RecursionError):  # it was cut
        del hidden[:]
    placed = list(_places(type_name, payload))
    after = placed[-1].end if placed else 0
    named = [Span(after + span.start, after + span.end) for span in spans(payload[after:], conf().redact)]
    inside = [
        Span(item.start + span.start, item.start + span.end)
        for item in placed
        if not item.hidden
        for span in spans(payload[item.start : item.end], conf().redact)
    ]
    found = sorted([*(Span(item.start, item.end) for item in placed if item.hidden), *inside, *named])
    hidden += (_read(payload[start:end]) for start, end in found)
    return without(payload, found)


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    hidden: bool


def _places(type_name: str, payload: str) -> Iterator[_Place]:
    """Return where the positional arguments stand in a text that was cut, as far as they can be read."""
    begin = _BEFORE_ITEMS.match(payload)
    if begin is None:
        return
    at = begin.end()
    for name in names(type_name, payload.count(",", at) + 1):
        if payload[at : at + 1] in ("", "]"):
            return
        hidden = hides(name)
        try:
            end = _DECODER.raw_decode(payload, at)[1]
        except ValueError:
            yield _Place(at, len(payload), hidden)
            return
        yield _Place(at, end, hidden)
        comma = _BETWEEN_ITEMS.match(payload, end)
        if comma is None:
            return
        at = comma.end()


def _read(part: str) -> Any:
    try:
        return json.loads(part)
    except ValueError:  # its end was cut off
        return part.strip("\"'")


def without(given: str, found: Iterable[Span]) -> str:
    parts, after = [], 0
    for start, end in found:
        parts += [given[after:start], MARK]
        after = end
    return "".join([*parts, given[after:]])


def _atoms(hidden: list[Any]) -> Iterator[str]:
    """Return the texts in what was masked, and the numbers as texts; what is short is not worth a mask."""
    for item in hidden:
        if isinstance(item, dict | list):
            yield from _atoms(list(item.values()) if isinstance(item, dict) else item)
        elif isinstance(item, str | int | float) and len(str(item)) >= SHORTEST_SECRET and not isinstance(item, bool):
            yield str(item)


@lru_cache(maxsize=100)
def spelled(found: tuple[str, ...]) -> tuple[str, ...]:
    """Return secrets also as reprs, JSON and addresses spell them, and each long line of one that has lines; longest first."""
    ways = {
        way
        for secret in found
        for part in (secret, *(line for line in secret.splitlines() if len(line) >= 2 * SHORTEST_SECRET))
        for way in (part, repr(part)[1:-1], *_as_json(part), quote(part, errors="replace"))
    }
    return tuple(sorted((way for way in ways if way.strip()), key=len, reverse=True))


def _as_json(part: str) -> Iterator[str]:
    return (json.dumps(part, ensure_ascii=only_ascii)[1:-1] for only_ascii in (False, True))
