"""Whose turn it is to tell of an alert. That it was told is noted afterwards: if that fails, another tells it again."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q

from django_jobs.engines.base import Engine
from django_jobs.models import Alert
from django_jobs.models.clock import Clock

# Whoever has taken one has so long for it.
TAKEN = timedelta(seconds=60)
TRIES = 5
FIRST_PAUSE = timedelta(seconds=5)


def take(engine: Engine) -> Alert | None:
    """Return an alert of which something is to be told; the first of its `to_tell` is the caller's to tell."""
    alerts = Alert.objects.using(engine.alias)
    with transaction.atomic(using=engine.alias):
        free = alerts.untold().filter(Q(taken_until__isnull=True) | Q(taken_until__lt=Clock()))
        found: Alert | None = free.order_by("id").select_for_update(skip_locked=True).first()
        if found is not None:
            alerts.filter(pk=found.pk).update(taken_until=Clock() + TAKEN)
    return found


def told(engine: Engine, alert: Alert) -> None:
    """Note that it was told, or is given up."""
    done = alert.to_tell[0]
    alerts = Alert.objects.using(engine.alias)
    with transaction.atomic(using=engine.alias):
        row = alerts.select_for_update().filter(pk=alert.pk).first()
        if row is not None and done in row.to_tell:
            row.to_tell.remove(done)
            alerts.filter(pk=row.pk).update(to_tell=row.to_tell, tries=0, taken_until=None)


def failed(engine: Engine, alert: Alert) -> bool:
    """Have it tried again after a while; return whether it is."""
    if alert.tries + 1 >= TRIES:
        told(engine, alert)
        return False
    again = Clock() + FIRST_PAUSE * 2**alert.tries
    Alert.objects.using(engine.alias).filter(pk=alert.pk).update(tries=F("tries") + 1, taken_until=again)
    return True
