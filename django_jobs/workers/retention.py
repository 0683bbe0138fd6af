"""What is folded or deleted because it is old. Whether anything is, is asked first: mostly nothing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction

from django_jobs import log
from django_jobs.alerts import look
from django_jobs.conf import Conf, conf
from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.models import Effect
from django_jobs.models.clock import Clock, database_now, for_row
from django_jobs.queue import bulk_acts, effect_log, stats

BATCH = 500


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, `most` rows at a time, while `rows`, which end in a time, has any older than `age`."""

    rows: str
    age: timedelta
    do: Callable[[], int]
    most: int


def tasks(engine: Engine, settings: Conf) -> list[Task]:
    kept = timedelta(seconds=settings.stats_for)
    folds = [
        Task(f"django_jobs_stat WHERE seconds < {seconds} AND minute", age, lambda: stats.fold(engine), stats.BATCH)
        for seconds, age, _ in stats.FOLDS
    ]
    return [
        *folds,
        Task("django_jobs_stat WHERE minute", kept, lambda: stats.forget(engine, settings.stats_for), stats.BATCH),
        Task(
            "django_jobs_effect WHERE asked_at",
            timedelta(seconds=settings.effect_window),
            lambda: purge(engine),
            BATCH,
        ),
        Task("django_jobs_alert WHERE cleared_at", kept, lambda: look.forget(engine, settings.stats_for), look.BATCH),
        Task(
            "django_jobs_bulkact WHERE created_at",
            bulk_acts.KEPT_FOR,
            lambda: bulk_acts.forget(engine),
            bulk_acts.FORGOTTEN_AT_ONCE,
        ),
    ]


def due(engine: Engine, asked: list[Task]) -> list[Task]:
    """Return those for which there is something to do, by one statement."""
    now, adapt = database_now(engine.alias), engine.connection.ops.adapt_datetimefield_value
    befores = [adapt(for_row(now - task.age, engine.alias)) for task in asked]
    ((*found,),) = rows(
        engine, f"SELECT {', '.join(f'EXISTS (SELECT 1 FROM {task.rows} < %s)' for task in asked)}", befores
    )
    return [task for task, has_some in zip(asked, found, strict=True) if has_some]


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
