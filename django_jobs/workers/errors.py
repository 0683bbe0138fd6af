"""What a run raised, as the texts that are stored of it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from django_jobs import payload
from django_jobs.engines.causes import CAME_FROM
from django_jobs.outcomes import Outcome

ERROR_LIMIT = 20_000
SHORT_ERROR_LIMIT = 500
CHAIN_LIMIT = 10


def chain(error: BaseException, hidden: bool = True) -> Iterator[BaseException]:
    """Return what led to an error, also what was hidden by `raise ... from None` unless that is left out."""
    # Bounded: a __cause__ may be a property that never ends.
    link: BaseException | None = error
    for _ in range(CHAIN_LIMIT):
        if link is None:
            return
        yield link
        link = link.__cause__ or (link.__context__ if hidden or not link.__suppress_context__ else None)


def describe(error: BaseException) -> str:
    """Return an error in one line of at most 500 storable characters."""
    if isinstance(error, Outcome):
        text = getattr(error, "reason", "") or type(error).__name__
    else:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return payload.storable(" ".join(text[:ERROR_LIMIT].split()), SHORT_ERROR_LIMIT)


def full_text(error: BaseException) -> str:
    """Return an error with the tracebacks of its chain, storable and of at most 20,000 characters."""
    parts = []
    for link in chain(error, hidden=False):
        parts.append("".join(traceback.format_exception(type(link), link, link.__traceback__, limit=-50, chain=False)))
    return payload.storable(CAME_FROM.join(parts), ERROR_LIMIT)
