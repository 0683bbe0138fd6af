"""Words that the tests of the archive share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django_jobs.engines.archive import archive
from django_jobs.models import ArchivedJob, Job
from django_jobs.models.clock import Clock
from django_jobs.queue.archive import Came, Round
from tests.acts import in_state
from tests.engines.common import alter, sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def ended(engine: Engine, status: str, days: float, **options: Any) -> Job:
    """Return a job that came to its end so many days ago."""
    job = in_state(engine, status, **options)
    alter(engine, job.pk, created_at=Clock() - days * DAY - HOUR, finished_at=Clock() - days * DAY)
    return job.refresh()


def go_round(engine: Engine, **options: Any) -> Came:
    """Make a round as fast as can be; return what came of it."""
    made = Round(archive(engine.alias), rest=0.0, **options)
    for _ in made.steps():
        pass
    return made.came


def here(engine: Engine) -> list[int]:
    """Return the ids of the jobs in the table of jobs."""
    return list(Job.objects.using(engine.alias).order_by("pk").values_list("pk", flat=True))


def archived(engine: Engine) -> list[int]:
    return list(ArchivedJob.objects.using(engine.alias).order_by("pk").values_list("pk", flat=True))


def age_archive(engine: Engine, days: float) -> None:
    """Have all that is archived be archived so many days ago; on PostgreSQL its one partition becomes that of that day."""
    if engine.name == "sqlite":
        ArchivedJob.objects.using(engine.alias).update(archived_at=Clock() - days * DAY)
        return
    (name,) = partitions(engine)
    aged = f"aged_{str(days).replace('.', '_')}"
    sql(engine, f"ALTER TABLE django_jobs_archivedjob DETACH PARTITION {name}")
    sql(engine, f"ALTER TABLE {name} RENAME TO {aged}")
    sql(engine, f"UPDATE {aged} SET archived_at = clock_timestamp() - {days} * interval '1 day'")
    ((start, end),) = sql(
        engine,
        "SELECT day::text || '+00', (day + interval '1 day')::text || '+00' "
        f"FROM date_trunc('day', (clock_timestamp() - {days} * interval '1 day') AT TIME ZONE 'UTC') day",
    )
    bounds = f"FOR VALUES FROM ('{start}') TO ('{end}')"
    sql(engine, f"ALTER TABLE django_jobs_archivedjob ATTACH PARTITION {aged} {bounds}")


def partitions(engine: Engine) -> list[str]:
    with engine.connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'django_jobs_archivedjob'::regclass ORDER BY 1"
        )
        return [row[0] for row in cursor.fetchall()]
