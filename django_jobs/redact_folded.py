"""What is shown of a line that several jobs have, each number in it as `#`: nothing that is secret in one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from django_jobs import redact, registry
from django_jobs.conf import conf
from django_jobs.redacted_text import spans

_NUMBER = re.compile("[0-9]+")
_LETTERS = re.compile("[A-Za-z]+")


def line(given: str, standing: Iterable[str] = ()) -> str:
    """Return such a line without what stands of secrets in it, and without what it says after names of REDACT."""
    for part in sorted(standing, key=len, reverse=True):
        given = given.replace(part, redact.MARK)
    words = tuple(map(_folded, conf().redact))
    return redact.without(given, spans(given, words)) if words else given


def standing(given: str, secrets: Iterable[str]) -> set[str]:
    """Return what stands of the secrets of a job in such a line, as it stands there; of a number nothing does.

    The line may be the end of a longer one, and begin within a secret.
    """
    possible = tuple(secret for secret in secrets if _may_stand(secret, given))
    ways = set(map(_folded, redact.spelled(possible))) if possible else set()
    parts = {part for way in ways for part in ({way} if way in given else _ends(way, given))}
    return {part for part in parts if any(map(str.isalpha, part))}


def _may_stand(secret: str, given: str) -> bool:
    """Tell by a quick look; however a secret of one line is spelled, its longest word stands there as it is."""
    if not secret.isascii() or "\n" in secret or "\r" in secret:
        return True
    word = max(_LETTERS.findall(secret), key=len, default="")
    return bool(word) and (word in given or given[: redact.SHORTEST_SECRET] in _folded(secret))


def types_with_secrets() -> list[str]:
    """Return the registered types of which an argument is secret by its place."""
    return [name for name in registry.names() if any(map(redact.hides, _parameters(name)))]


def _parameters(name: str) -> Iterable[str]:
    found = registry.find(name)
    return found.signature.parameters if found else ()


def _ends(way: str, given: str) -> Iterator[str]:
    """Return that end of a secret with which a line begins."""
    if given[: redact.SHORTEST_SECRET] in way:
        ends = (way[at:] for at in range(1, len(way) - redact.SHORTEST_SECRET + 1))
        yield from (end for end in ends if given.startswith(end))


def _folded(given: str) -> str:
    return _NUMBER.sub("#", given)
