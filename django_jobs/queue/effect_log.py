"""The log lines about effects outside the database."""

from __future__ import annotations

import logging
from datetime import timedelta

from django_jobs.log import say


def effects_never_settled(number: int, key: str, window: timedelta) -> None:
    say(logging.WARNING,
        "%d effects outside the database may have happened, nobody settled them within EFFECT_WINDOW (%s), and their "
        "records are deleted now; the oldest is %r", number, window, key,
    )  # fmt: skip


def effect_settled(key: str, what: str, by: str, why: str) -> None:
    say(logging.INFO, "Effect %r: %s says that %s%s", key, by or "somebody", what, f": {why}" if why else "")
