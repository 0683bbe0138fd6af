"""Looking whether a threshold is passed. All who look at once raise one alert: the first row of its kind and name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings as project
from django.db import transaction

from django_jobs.conf import Conf, conf
from django_jobs.engines import engine as engine_of
from django_jobs.engines.base import Engine
from django_jobs.engines.depths import depths
from django_jobs.models import Alert, Job, Pause
from django_jobs.models.clock import Clock

# It is over when this part of the threshold is kept, so that what swings about it is not told again and again.
CLEARED = 0.9
# Dead letters are counted so far beyond the threshold.
BEYOND = 1000
BATCH = 500


class Measured(NamedTuple):
    value: float
    limit: float


def open_alerts(settings: Conf | None = None) -> list[Alert]:
    """Return the alerts in force, the oldest first; none of a kind that has no threshold any more."""
    kinds = list(_limits(settings or conf()))
    return list(Alert.objects.using(engine_of().alias).open().filter(kind__in=kinds).order_by("raised_at"))


def look(engine: Engine, settings: Conf) -> None:
    """Raise alerts for what is over its threshold, clear those for what is well below, and note who is to be told."""
    measured, skipped = _measure(engine, settings)
    alerts = Alert.objects.using(engine.alias)
    with transaction.atomic(using=engine.alias):
        known = {(alert.kind, alert.name): alert for alert in alerts.open().select_for_update().order_by("id")}
        raised = [
            Alert(
                kind=kind,
                name=name,
                value=found.value,
                limit=found.limit,
                to_tell=_to_tell("raised", found.value, settings),
            )
            for (kind, name), found in measured.items()
            if found.value > found.limit and (kind, name) not in known
        ]
        alerts.bulk_create(raised, ignore_conflicts=True)
        limits = _limits(settings)
        for (kind, name), alert in known.items():
            if kind not in limits:
                alerts.filter(pk=alert.pk).update(cleared_at=Clock())  # nobody asked to be told any more
            elif name not in skipped:
                _go_on(engine, alert, measured.get((kind, name), Measured(0.0, limits[kind])), settings)


def forget(engine: Engine, kept_for: float) -> int:
    """Delete alerts that were cleared more than so many seconds ago, at most BATCH; return how many."""
    alerts = Alert.objects.using(engine.alias)
    old = alerts.filter(cleared_at__lt=Clock() - timedelta(seconds=kept_for)).order_by("cleared_at")
    ids = list(old.values_list("pk", flat=True)[:BATCH])
    return alerts.filter(pk__in=ids).delete()[0] if ids else 0


def _go_on(engine: Engine, alert: Alert, found: Measured, settings: Conf) -> None:
    row = Alert.objects.using(engine.alias).filter(pk=alert.pk)
    if found.value < CLEARED * found.limit:
        row.update(
            value=found.value, cleared_at=Clock(), to_tell=[*alert.to_tell, *_to_tell("cleared", found.value, settings)]
        )
    elif found.value != alert.value:
        row.update(value=found.value)


def _limits(settings: Conf) -> dict[str, float]:
    given = {Alert.Kind.DEAD_LETTERS: settings.dead_letter_alert, Alert.Kind.QUEUE_AGE: settings.queue_age_alert}
    return {kind.value: float(limit) for kind, limit in given.items() if limit is not None}


def _measure(engine: Engine, settings: Conf) -> tuple[dict[tuple[str, str], Measured], set[str]]:
    """Return what there is of each kind and name, and the queues of which nothing is said: somebody wants them to wait."""
    found: dict[tuple[str, str], Measured] = {}
    limits = _limits(settings)
    if (most := limits.get(Alert.Kind.DEAD_LETTERS)) is not None:
        jobs = Job.objects.using(engine.alias).dead_letters().order_by()
        found[Alert.Kind.DEAD_LETTERS.value, ""] = Measured(jobs[: int(most) + BEYOND].count(), most)
    paused: set[str] = set()
    if (limit := limits.get(Alert.Kind.QUEUE_AGE)) is not None:
        paused = Pause.objects.using(engine.alias).names(Pause.Kind.QUEUE)
        for queue in depths(engine, 1).queues:
            if queue.oldest is not None and queue.queue not in paused:
                found[Alert.Kind.QUEUE_AGE.value, queue.queue] = Measured(round(queue.oldest, 3), limit)
    return found, paused


def _to_tell(event: str, value: float, settings: Conf) -> list[list[Any]]:
    channels = ["log", "signal"]
    channels += ["mail"] if project.ADMINS else []
    channels += ["webhook"] if settings.alert_webhook else []
    return [[event, channel, value] for channel in channels]
