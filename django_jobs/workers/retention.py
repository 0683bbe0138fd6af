"""What is deleted because it is old."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from django_jobs import log
from django_jobs.conf import conf
from django_jobs.engines.base import Engine
from django_jobs.models import Effect
from django_jobs.models.clock import Clock
from django_jobs.queue import effect_log

BATCH = 500


def purge(engine: Engine) -> int:
    """Delete the oldest effects that are older than EFFECT_WINDOW, at most BATCH; return how many."""
    window = timedelta(seconds=conf().effect_window)
    effects = Effect.objects.using(engine.alias)
    with transaction.atomic(using=engine.alias):
        # Those that somebody is settling, or that another supervisor deletes, are passed over.
        old = effects.filter(asked_at__lt=Clock() - window).order_by("asked_at").select_for_update(skip_locked=True)
        ids = list(old.values_list("pk", flat=True)[:BATCH])
        if not ids:
            return 0
        unsettled = effects.unanswered().filter(pk__in=ids).order_by("asked_at")
        keys = list(unsettled.values_list("key", flat=True))
        if keys:
            log.when_committed(engine.alias, effect_log.effects_never_settled, len(keys), keys[0], window)
        effects.filter(pk__in=ids).delete()
    return len(ids)
