"""Where free text says the values of certain names. It may be cut anywhere; what is not closed goes to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_AUTH_SCHEME = re.compile(r"(?:bearer|basic|digest|token) +(?=\S)", re.IGNORECASE)
_OPENING = re.compile(r"[bBrRuUfF]{0,2}(\\{0,9})([\"'])")
_BARE = re.compile(r"[^\s,;&)\]}\"'<>]+")
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_IN_BRACKETS = re.compile(r"\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|[\[\]{}()]", re.DOTALL)
# The last line of a traceback begins so, and what follows says what happened.
_ERRORS = re.compile(r"(?:Error|Exception|Warning|Group)\Z")


class Span(NamedTuple):
    start: int
    end: int


def spans(text: str, words: tuple[str, ...]) -> Iterator[Span]:
    """Return where the values of names stand in which one of these words is a part, in order; none within another."""
    after = 0
    for head in _heads(words).finditer(text):
        if head.start() < after or (head["says"] == ":" and not head["quote"] and _ERRORS.search(head["name"])):
            continue
        end = _end(text, head.end())
        if end > head.end():
            yield Span(head.end(), end)
            after = end


@lru_cache(maxsize=20)
def _heads(words: tuple[str, ...]) -> re.Pattern[str]:
    # The word and what follows, not what is before it: one that looked for the whole name would begin at each letter.
    word = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(
        rf"(?P<name>(?:{word})(?:[\w.\-]{{0,100}}|[^\"'\n]{{0,100}}(?=\\*[\"'])))"
        r"(?P<quote>\\{0,9}[\"'])?\]?[ \t]{0,9}(?P<says>[:=!]?=|:)[ \t]{0,9}",
        re.IGNORECASE,
    )


def _end(text: str, start: int) -> int:
    """Return where the value ends that begins there."""
    opening = _OPENING.match(text, start)
    if opening is not None:
        return _end_of_quoted(text, opening)
    if text[start : start + 1] in _CLOSING:
        return _end_of_brackets(text, start)
    scheme = _AUTH_SCHEME.match(text, start)
    bare = _BARE.match(text, scheme.end() if scheme else start)
    return bare.end() if bare else start


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    escapes, mark = opening.groups()
    if escapes:  # a repr of a repr: it ends where the same stands again
        end = text.find(escapes + mark, opening.end())
        return len(text) if end < 0 else end + len(escapes) + 1
    closing = re.compile(rf"(?:[^{mark}\\]|\\.)*+{mark}", re.DOTALL).match(text, opening.end())
    return closing.end() if closing else len(text)


def _end_of_brackets(text: str, start: int) -> int:
    depth = 0
    for found in _IN_BRACKETS.finditer(text, start):
        if found.group() in _CLOSING:
            depth += 1
        elif found.group() in _CLOSING.values():
            depth -= 1
            if not depth:
                return found.end()
    return len(text)
