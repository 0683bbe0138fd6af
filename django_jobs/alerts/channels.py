"""How an alert is told: the log, a signal, a mail to the project's admins, a POST to a webhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.mail import mail_admins

from django_jobs import signals
from django_jobs.alerts import log
from django_jobs.alerts.look import BEYOND
from django_jobs.conf import conf
from django_jobs.models import Alert
from django_jobs.receivers.guard import Guard


def tell(alert: Alert) -> None:
    """Tell the first of what is to be told; raise whatever went wrong."""
    event, channel, value = alert.to_tell[0]
    with Guard(f"Telling an alert by {channel}"):
        _CHANNELS[channel](alert, event, value)


def sentence(alert: Alert, event: str, value: float) -> str:
    """Say what happened, as in "There are 120 dead letters; the threshold is 100."."""
    if alert.kind == Alert.Kind.DEAD_LETTERS:
        least = "at least " if value >= alert.limit + BEYOND else ""
        many = "is 1 dead letter" if value == 1 else f"are {least}{value:.0f} dead letters"
        said, limit = f"there {many}", f"{alert.limit:g}"
    elif event == "raised":
        said, limit = (
            f"the oldest due job of the queue {alert.name} waits for {value:.0f} s",
            f"{alert.limit:g} s",
        )
    else:
        said, limit = f"no due job of the queue {alert.name} waits for long", f"{alert.limit:g} s"
    again = "It is over: " if event == "cleared" else ""
    text = f"{again}{said}; the threshold is {limit}."
    return text[0].upper() + text[1:]


def _log(alert: Alert, event: str, value: float) -> None:
    log.alert(event, sentence(alert, event, value), alert)


def _signal(alert: Alert, event: str, value: float) -> None:
    signal = signals.alert_raised if event == "raised" else signals.alert_cleared
    signal.send_robust(sender=Alert, alert=alert)


def _mail(alert: Alert, event: str, value: float) -> None:
    what = f"dead letters{'' if event == 'raised' else ': over'}"
    if alert.kind == Alert.Kind.QUEUE_AGE:
        what = f"queue {alert.name} {'waits' if event == 'raised' else 'goes on'}"
    mail_admins(
        f"django_jobs: {what}", f"{sentence(alert, event, value)}\n\n`manage.py jobs doctor` says what to do.\n"
    )


def _webhook(alert: Alert, event: str, value: float) -> None:
    url = conf().alert_webhook
    if url is None:
        return
    from django_jobs.alerts.webhook import post

    post(url, json.dumps(_content(alert, event, value)).encode())


def _content(alert: Alert, event: str, value: float) -> dict[str, Any]:
    return {
        "event": event,
        "alert": alert.pk,
        "kind": alert.kind,
        "queue": alert.name or None,
        "value": value,
        "limit": alert.limit,
        "raised_at": _text(alert.raised_at),
        "cleared_at": _text(alert.cleared_at),
        "text": sentence(alert, event, value),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


_CHANNELS: dict[str, Callable[[Alert, str, float], None]] = {
    "log": _log,
    "signal": _signal,
    "mail": _mail,
    "webhook": _webhook,
}
