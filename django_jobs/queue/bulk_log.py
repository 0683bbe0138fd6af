"""The log lines about acts upon all that a filter finds."""

from __future__ import annotations

import logging

from django_jobs.log import say


def stepped(pk: int, act: str, done: int, refused: int, after: int, by: str) -> None:
    say(logging.INFO, "Bulk act %d (%s%s): %d jobs done, %d refused, up to id %d",
        pk, act, f" by {by}" if by else "", done, refused, after,
    )  # fmt: skip


def said(pk: int, act: str, what: str, by: str, why: str) -> None:
    say(logging.INFO, "Bulk act %d (%s) is %s%s%s", pk, act, what, f" by {by}" if by else "", f": {why}" if why else "")
