"""Arguments and results as JSON: what may be stored, and the words for what may not."""

from __future__ import annotations

import datetime
import json
import math
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any

from django.db.models import Model, QuerySet
from django.utils.functional import Promise

from django_jobs import texts
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.texts import text as _

DEPTH_LIMIT = 100
# NUL cannot be stored in PostgreSQL's text and jsonb; a lone surrogate is not text in any encoding.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The largest int that Python itself turns into text without being told to.
DIGITS_LIMIT_BITS = 14_000
_TEXT = frozenset({str})
# Below it an int is told at a glance to be short.
PLAIN_NUMBER = 10**18
LEFT_OUT = " ... {} characters left out ... "
# A number with a positive exponent, or a text to step over.
_EXPONENT = re.compile(r'"(?:[^"\\]+|\\.)*"|-?\d[\d.]*e\+\d+')

_INSTEAD: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (tuple, "pass a list"),
    ((set, frozenset), "pass a list, for example sorted(value)"),
    ((bytes, bytearray, memoryview), "pass text, for example base64.b64encode(value).decode()"),
    ((datetime.datetime, datetime.date, datetime.time), "pass value.isoformat()"),
    (datetime.timedelta, "pass value.total_seconds()"),
    (Decimal, "pass str(value)"),
    (uuid.UUID, "pass str(value)"),
    (Model, "pass value.pk and read the row in the job"),
    (QuerySet, "pass the primary keys as a list"),
    (Promise, "pass str(value)"),
    (complex, "pass [value.real, value.imag]"),
)


class TooLarge(Exception):
    """Values whose JSON is longer than the limit for sure."""


class Check:
    """Looks at values that are to be stored together, whose JSON may have `limit` bytes.

    It stops where that is exceeded: what holds the same list again and again is walked, and written, once for each way
    there, of which there may be more than there are atoms.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __call__(self, value: Any, where: str, depth: int = 0, path: str = "") -> None:
        """Raise InvalidJob or InvalidJobType, naming the place and the remedy, unless `value` can be stored as JSON.

        `path` leads on from the place. Raise TooLarge as soon as the values so far are.
        """
        # A value has at least one byte, and one before or after it.
        self._take(1)
        if value is None or isinstance(value, bool):
            return
        if isinstance(value, str):
            self._text(value, where, path)
        elif isinstance(value, int):
            if value.bit_length() > DIGITS_LIMIT_BITS:
                raise InvalidJob(_("%s is a whole number of over 4,200 digits; pass it as text.", _at(where, path)))
            self._take(value.bit_length() // 5)  # fewer than it has digits
        elif isinstance(value, float):
            if not math.isfinite(value):
                words = {"where": _at(where, path), "value": repr(value)}
                raise InvalidJob(_("%(where)s is %(value)s, which JSON has no word for; pass None or text.", **words))
        elif isinstance(value, dict | list):
            self._inside(value, where, depth + 1, path)
        else:
            kind, text = type(value).__name__, shown(value)
            said = "" if text == f"<{kind}>" else f" ({text})"
            raise InvalidJobType(f"{where}{path} is a {kind}{said}, not JSON; {_remedy(value)}.")

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge

    def _text(self, value: str, where: str, path: str) -> None:
        self._take(len(value))
        found = UNSTORABLE.search(value)
        if found:
            what = _("a NUL character") if found.group() == "\x00" else _("a lone surrogate")
            words = {"where": _at(where, path), "what": what, "place": found.start()}
            raise InvalidJob(
                _("%(where)s has %(what)s at position %(place)d; take it out, or pass base64 text.", **words)
            )

    def _inside(self, value: dict[Any, Any] | list[Any], where: str, depth: int, path: str) -> None:
        if depth > DEPTH_LIMIT:
            words = {"where": _at(where, path[: max(120 - len(where), 0)]), "limit": DEPTH_LIMIT}
            raise InvalidJob(_("%(where)s... is nested over %(limit)d deep; pass flatter data.", **words))
        if isinstance(value, list):
            for index, item in enumerate(value):
                self(item, where, depth, f"{path}[{index}]")
            return
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidJobType(f"{where}{path} has the key {shown(key)}; JSON keys are text: pass str(key).")
            self._text(key, _("a key of %s", where) if UNSTORABLE.search(key) else where, path)
            self(item, where, depth, f"{path}[{key[:40]!r}]")


def _at(where: str, path: str) -> str:
    return texts.text("%s%s", where, path)  # which is the same in any language


def plain(args: list[Any], kwargs: dict[str, Any], limit: int) -> str | None:
    """Return arguments as `dump` writes them, if they are surely storable; None if `Check` has to say.

    It lets nothing through that `Check` refuses, at a fraction of the time: no class but JSON's own, and no number of many
    digits, is in it.
    """
    if not _is_plain([args, kwargs] if kwargs else [args], limit):
        return None
    try:
        text = dump({"args": args, "kwargs": kwargs})
        size = len(text) if text.isascii() else len(text.encode())
    except (ValueError, RecursionError):  # NaN and infinities; lone surrogates
        return None
    return None if size > limit or "\\u0000" in text else text


def _is_plain(level: list[Any], left: int) -> bool:
    """Walk level by level, and no further than the JSON could be `left` bytes long."""
    for _level in range(DEPTH_LIMIT + 1):
        inner: list[Any] = []
        for outer in level:
            items = outer
            if type(outer) is dict:
                if not _TEXT.issuperset(map(type, outer)):
                    return False
                left -= sum(map(len, outer))
                items = outer.values()
            left = _after_plain(items, left, inner)
            if left < 0:
                return False
        if not inner:
            return True
        level = inner
    return False


def _after_plain(items: Collection[Any], left: int, inner: list[Any]) -> int:
    """Return what is left of the bytes after these, and put aside what has others inside; -1 when one is not plain."""
    left -= len(items)
    for item in items:
        kind = type(item)
        if kind is str:
            left -= len(item)
        elif kind is int:
            if not -PLAIN_NUMBER < item < PLAIN_NUMBER:
                return -1
        elif kind is list or kind is dict:
            inner.append(item)
        elif item is not None and kind is not bool and kind is not float:
            return -1
    return left


def _remedy(value: object) -> str:
    for kinds, remedy in _INSTEAD:
        if isinstance(value, kinds):
            return remedy
    if isinstance(value, Mapping):
        return "pass dict(value)"
    return "pass text, numbers, lists and dicts only"


def storable(text: str, limit: int | None = None) -> str:
    """Return text that every database stores: NUL and lone surrogates replaced.

    Cut in its middle to `limit` characters, with a notice; a line stays one.
    """
    if limit is not None and len(text) > limit:
        half = max(limit - len(LEFT_OUT.format(len(text))), 0) // 2
        text = text[:half] + LEFT_OUT.format(len(text) - 2 * half) + text[len(text) - half :]
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _encoder() -> Callable[[Any], str]:
    """Return what writes JSON as `json.dumps` does, without making the encoder, half the cost, anew for each value."""
    whole = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    made: Any = json.encoder
    try:
        parts = made.c_make_encoder(None, whole.default, made.encode_basestring, None, ":", ",", False, False, False)
    except (AttributeError, TypeError):  # no such thing in this Python
        return whole.encode
    return lambda value: "".join(parts(value, 0))


_encode = _encoder()


def dump(value: Any) -> str:
    """Return JSON in one line."""
    text = _encode(value)
    return _EXPONENT.sub(_without_exponent, text) if "e+" in text else text


def _without_exponent(found: re.Match[str]) -> str:
    # PostgreSQL's jsonb turns 1e+23 into a whole number; with a decimal point it comes back as the float it was.
    return found.group() if found.group()[0] == '"' else f"{Decimal(found.group()):f}.0"


def dump_result(value: Any, limit: int) -> str | None:
    """Return a handler's result as JSON, None for None; raise InvalidJob or InvalidJobType when it is not JSON.

    Unlike arguments, results may hold NUL and surrogates: they are replaced, since the work is done.
    """
    if value is None:
        return None
    value = storable(value) if isinstance(value, str) else _storable_inside(value, limit)
    if value is TooLarge:  # raised here, where no other error is under way: a worker stores the chain
        raise _result_too_large(f"over {limit:,}", limit)
    text = dump(value)
    if len(text) > limit or len(text.encode()) > limit:
        raise _result_too_large(f"{len(text.encode()):,}", limit)
    return text


def _result_too_large(size: str, limit: int) -> InvalidJob:
    return InvalidJob(
        f"the result is {size} bytes of JSON; MAX_RESULT_BYTES allows {limit:,}. Store it elsewhere and return where."
    )


def _storable_inside(value: Any, limit: int) -> Any:
    try:
        found = _Storable(limit)(value)
        Check(limit)(found, "the result")
    except TooLarge:
        return TooLarge
    return found


class _Storable:
    """Replaces in a result what no database stores; stops as `Check` does."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __call__(self, value: Any, depth: int = 0) -> Any:
        self._left -= len(value) + 1 if isinstance(value, str) else 1
        if self._left < 0:
            raise TooLarge
        if isinstance(value, str):
            return storable(value)
        if isinstance(value, dict | list) and depth >= DEPTH_LIMIT:
            raise InvalidJob(f"the result is nested over {DEPTH_LIMIT} deep; return flatter data.")
        if isinstance(value, list):
            return [self(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {
                (storable(key) if isinstance(key, str) else key): self(item, depth + 1) for key, item in value.items()
            }
        return value


def same(left: str, right: str) -> bool:
    """Tell whether two JSON texts say the same, whatever their order of keys and spelling of numbers."""
    return bool(_typed(json.loads(left, parse_float=Decimal)) == _typed(json.loads(right, parse_float=Decimal)))


def _typed(value: Any) -> Any:
    # True == 1 in Python, but not in JSON.
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return value
