from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: a name that stays, what it is, and what to do."""

    name: str
    text: str
    remedy: str


def names(found: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
