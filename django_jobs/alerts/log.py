"""The log lines of alerts."""

from __future__ import annotations

import logging

from django_jobs.log import say
from django_jobs.models import Alert


def alert(event: str, sentence: str, alert: Alert) -> None:
    level = logging.ERROR if event == "raised" else logging.INFO
    say(level, "Alert %s: %s", event, sentence, extra={"alert_kind": alert.kind, "queue": alert.name or None})


def not_told(channel: str, event: str, error: BaseException, again: bool) -> None:
    rest = "it is tried again" if again else "it is given up"
    said = " ".join(str(error).split()) or type(error).__name__
    level = logging.WARNING if again else logging.ERROR
    say(level, "Nobody is told by %s that an alert was %s; %s: %s", channel, event, rest, said)
