"""Texts for people: English where they are stored, logged or raised, and in the reader's language where a page shows them.

A text keeps its format and its values, so that it can be said again in another language. Modules import `text` as `_`, so
that `makemessages` finds what is to be translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from django.utils import translation
from django.utils.formats import number_format
from django.utils.functional import lazy
from django.utils.html import escape

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


class Text(str):
    """A text in English, whatever language is active. Templates and `format_html` show it in the active one."""

    def translated(self) -> str:
        """Return the same in the active language."""
        return str(self)

    def __html__(self) -> str:
        return escape(self.translated())


class _Filled(Text):
    """`forms`: the format, and that for more than one if there is a `number`. `values`: what it is filled with."""

    forms: tuple[str, ...]
    number: int | None
    values: Any

    def translated(self) -> str:
        if self.number is None:
            form = translation.gettext(self.forms[0])
        else:
            form = translation.ngettext(self.forms[0], self.forms[1], self.number)
        return _fill(form, self.values, translated)


class _Number(Text):
    places: int

    def translated(self) -> str:
        return number_format(Decimal(self), self.places, use_l10n=True, force_grouping=True)


class _Foreign(Text):
    say: Callable[[], str]

    def translated(self) -> str:
        return self.say()

    def __reduce__(self) -> tuple[type[Text], tuple[str]]:
        return Text, (str(self),)  # what says it in other languages may be a function that cannot be pickled

    def __copy__(self) -> _Foreign:
        return self

    def __deepcopy__(self, memo: object) -> _Foreign:
        return self


def text(english: str, /, *values: Any, **named: Any) -> Text:
    """Return a text of a format, filled with values that may be texts themselves."""
    return _filled((english,), None, named or values)


def ngettext(one: str, more: str, number: int, /, **named: Any) -> Text:
    """Return a text of one of two formats, by a number."""
    return _filled((one, more), number, named)


_ = text


def number(value: float, places: int = 0) -> Text:
    """Return a number that is written as the reader's language has it."""
    found = _Number(f"{value:.{places}f}")
    found.places = places
    return found


def span(length: timedelta) -> Text:
    """Return a duration in its largest unit."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 2 * _MINUTE:
        return _("%s s", number(seconds, 1 if seconds < 9.95 else 0))
    if seconds < 2 * _HOUR:
        return _("%s min", number(seconds / _MINUTE))
    if seconds < 2 * _DAY:
        return _("%s h", number(seconds / _HOUR))
    return _("%s days", number(seconds / _DAY))


def either(words: Sequence[str]) -> str:
    """Return words of code that can be translated, as alternatives."""
    return reduce(
        lambda first, last: _("%(first)s or %(last)s", first=first, last=last), [text(word) for word in words]
    )


def foreign(say: Callable[[], str], english: str | None = None) -> Text:
    """Return a text that others make in the active language, as Django does of its own errors."""
    with translation.override("en"):
        found = _Foreign(say() if english is None else english)
    found.say = say
    return found


def lazily(said: str) -> Any:
    """Return a text as Django takes those that are to be translated when they are shown, as in a ValidationError."""
    return _lazily(said)


def of(error: BaseException) -> str:
    """Return the message of an exception, as a text if it is one."""
    return error.args[0] if len(error.args) == 1 and isinstance(error.args[0], Text) else str(error)


def translated(said: Any) -> Any:
    """Return what a text, or an exception by its message, says in the active language; all else as it is."""
    found = of(said) if isinstance(said, BaseException) else said
    return found.translated() if isinstance(found, Text) else found


# One class for all: each call of `lazy` makes another.
_lazily = lazy(translated, str)


def kept(said: str) -> list[Any]:
    """Return a text as JSON: in English, and behind it what is needed to say it anew."""
    return [str(said), _parts(said)] if isinstance(said, _Filled) else [str(said)]


def kept_text(english: str, parts: Any = None) -> str:
    """Return the text that `kept` has stored."""
    try:
        found = _again(parts)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # it was stored by hand, or has no parts
        return english
    return found if found == english else english


def _again(parts: Any) -> Text:
    values = _each(parts["values"], lambda value: _again(value) if isinstance(value, dict) else value)
    return _filled(tuple(parts["forms"]), parts["number"], values)


def _filled(forms: tuple[str, ...], number: int | None, values: Any) -> Text:
    form = forms[0] if number in (None, 1) else forms[1]
    found = _Filled(_fill(form, values, str))
    found.forms, found.number, found.values = forms, number, values
    return found


def _fill(form: str, values: Any, say: Callable[[Any], Any]) -> str:
    return form % _each(values, lambda value: say(value) if isinstance(value, Text) else value) if values else form


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(values, dict):
        return {name: change(value) for name, value in values.items()}
    return tuple(map(change, values))


def _parts(said: _Filled) -> dict[str, Any]:
    values = _each(said.values, lambda value: _parts(value) if isinstance(value, _Filled) else _plain(value))
    return {
        "forms": list(said.forms),
        "number": said.number,
        "values": values if isinstance(values, dict) else list(values),
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float) else str(value)
