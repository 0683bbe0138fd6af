from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: a name that stays, what it is, and what to do.

    `is_note`: nothing is wrong yet, but somebody should look, as the overview of the admin says too.
    """

    name: str
    text: str
    remedy: str
    is_note: bool = False


def names(found: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
