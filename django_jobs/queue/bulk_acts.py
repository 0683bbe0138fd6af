"""Acts upon all jobs that a filter finds: which jobs each means, and its row from the confirmation to the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from django_jobs.engines import jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.models import BulkAct, Job, JobQuerySet
from django_jobs.models.clock import database_now, for_row
from django_jobs.queue.operate import FINISHED, UNFINISHED
from django_jobs.queue.sought import ENDED, WAITING, Sought

# The type of the jobs that carry them out, which no act means.
TYPE = "django_jobs.bulk"
# In the order in which a page offers them.
ACTS = (BulkAct.Act.REQUEUE, BulkAct.Act.CANCEL, BulkAct.Act.MOVE, BulkAct.Act.DELETE)
KEPT_FOR = timedelta(days=90)
FORGOTTEN_AT_ONCE = 500


def states(act: str, sought: Sought) -> tuple[str, ...]:
    """Return in which states a job has to be that the act means, of those that the filter finds.

    What runs is never deleted or moved. Jobs that are done run again, ended ones are moved and waiting ones are deleted
    only when the filter names that state: nobody means them by a type or a queue alone.
    """
    match act:
        case BulkAct.Act.REQUEUE:
            return FINISHED if sought.state == "done" else (Job.Status.FAILED, Job.Status.DEAD, Job.Status.CANCELLED)
        case BulkAct.Act.CANCEL:
            return UNFINISHED
        case BulkAct.Act.DELETE:
            return (Job.Status.READY,) if sought.state in WAITING else FINISHED
        case BulkAct.Act.MOVE:
            return FINISHED if sought.state in ENDED else (Job.Status.READY,)
    raise ValueError(act)


def fits(act: str, sought: Sought) -> bool:
    """Tell whether the filter can find any job that the act means."""
    if act == BulkAct.Act.REQUEUE:
        return sought.state in ("", *ENDED)
    if act == BulkAct.Act.CANCEL:
        return sought.state not in ENDED
    return sought.state != "running"


def meant(act: str, sought: Sought, among: QuerySet[Any] | None = None) -> JobQuerySet:
    """Return the jobs that an act upon what a filter finds would mean now, in no order; of those given, or of all."""
    rows: JobQuerySet = sought.rows(among).filter(status__in=states(act, sought)).exclude(type=TYPE)  # type: ignore[assignment]
    return rows


def meant_by(act: BulkAct) -> JobQuerySet:
    """Return those that a confirmed act means and has not gone through.

    A job that ended after it was confirmed is not meant: nobody has seen that end.
    """
    rows = meant(act.act, Sought.from_json(act.sought)).filter(pk__gt=act.after, pk__lte=act.upto)
    return rows.filter(Q(finished_at__isnull=True) | Q(finished_at__lte=act.created_at))


def under_way(alias: str | None = None) -> QuerySet[BulkAct]:
    """Return the acts that have neither ended nor been cancelled."""
    return BulkAct.objects.using(alias or jobs_alias()).filter(state__in=BulkAct.UNDER_WAY)


def forget(engine: Engine, kept_for: timedelta = KEPT_FOR) -> int:
    """Delete acts of which nothing was heard for so long, unless a job carries them out; return how many those were."""
    alias = engine.alias
    before = for_row(database_now(alias) - kept_for, alias)
    old = BulkAct.objects.using(alias).annotate(heard_at=Coalesce("finished_at", "stepped_at", "created_at"))
    found = dict(old.filter(heard_at__lt=before).order_by("pk").values_list("pk", "job_id")[:FORGOTTEN_AT_ONCE])
    alive = Job.objects.using(alias).filter(pk__in=found.values(), status__in=UNFINISHED).values_list("pk", flat=True)
    kept = set(alive)
    ids = [pk for pk, job_id in found.items() if job_id not in kept]
    return BulkAct.objects.using(alias).filter(pk__in=ids).delete()[0] if ids else 0
