"""The log lines about what receivers leave behind."""

from __future__ import annotations

import logging

from django_jobs.log import say


def statement_failed(who: str, alias: str, error: BaseException | None) -> None:
    what = "broke the transaction" if error is None else f"broke the transaction ({' '.join(str(error).split())})"
    say(logging.ERROR, "%s %s on the database %r; what was written there by all that were called is taken back",
        who, what, alias,
    )  # fmt: skip


def left_open(who: str, alias: str) -> None:
    say(logging.ERROR, "%s left a transaction open on the database %r; it is rolled back", who, alias)
