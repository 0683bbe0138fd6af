"""The log lines about what receivers leave behind."""

from __future__ import annotations

import logging
from typing import Any

from django_jobs.log import is_to_be_said, say


def statement_failed(who: str, alias: str, error: BaseException | None) -> None:
    what = "broke the transaction" if error is None else f"broke the transaction ({' '.join(str(error).split())})"
    say(logging.ERROR, "%s %s on the database %r; what all that were called wrote there is taken back, if not committed",
        who, what, alias,
    )  # fmt: skip


def raised(who: str, receiver: Any, error: Exception) -> None:
    name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
    if is_to_be_said(f"{who}: {name}"):
        said = "%s, %s, raised %s: %s; nothing else is changed by it (django.dispatch has logged where)"
        say(logging.ERROR, said, who, name, type(error).__name__, " ".join(str(error).split())[:300])


def left_open(who: str, alias: str) -> None:
    say(logging.ERROR, "%s left a transaction open on the database %r; it is rolled back", who, alias)
