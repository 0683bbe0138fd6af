"""What the archive asks of a database: steps that are short, each a transaction of its own, and safe beside each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q

from django_jobs.engines import engine
from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.models import Job, JobQuerySet
from django_jobs.models.clock import Clock

WELL, UNWELL = (Job.Status.DONE, Job.Status.CANCELLED), Job.DEAD_LETTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """How long after its end a job stays in the table of jobs: one that is done or cancelled, one that is dead or failed,
    and at least, whatever its end, one whose key still holds."""

    done: timedelta
    dead: timedelta
    keyed: timedelta

    def longer(self, by: timedelta) -> Ages:
        return Ages(done=self.done + by, dead=self.dead + by, keyed=self.keyed + by)

    @property
    def shortest(self) -> timedelta:
        return min(self.done, self.dead)

    def over(self) -> Q:
        ended = Q(status__in=WELL, finished_at__lt=Clock() - self.done)
        ended |= Q(status__in=UNWELL, finished_at__lt=Clock() - self.dead)
        return ended & (Q(idempotency_key__isnull=True) | Q(finished_at__lt=Clock() - self.keyed))


class Part(NamedTuple):
    """Ids of which a step looks at those above `after` and up to `upto`, and takes no more than `limit`."""

    after: int
    upto: int
    limit: int


class Moved(NamedTuple):
    """How many jobs were taken, the last of them, and whether the last that was seen was made too lately to be old."""

    number: int
    last: int | None
    young: bool


class InUse(Exception):
    """Somebody has the archive open, and would be waited for."""


class Forbidden(Exception):
    """The database's user may not do it."""


class Archive(ABC):
    """The table of old jobs beside the table of jobs."""

    # Rows that a step takes at most: whoever waits for one waits for all of them.
    most: int
    # Whether what is forgotten is dropped as a whole, by days.
    by_partitions: bool

    def __init__(self, found: Engine) -> None:
        self.engine = found
        self.alias = found.alias

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Say whether nobody else is at the archive; nobody will be until the end of the block."""
        yield True

    def may_prepare(self) -> bool:
        """Tell whether this user may make a place for what is archived; also when there is no archive yet."""
        return True

    @abstractmethod
    def prepare(self) -> None:
        """See that there is a place for what is archived now; raise Forbidden when it cannot be made for want of a right."""

    @abstractmethod
    def move(self, part: Part, ages: Ages, keep: bool) -> Moved:
        """Take old jobs, and put them into the archive if they are to be kept."""

    def count(self, part: Part, ages: Ages) -> Moved:
        """Return what `move` would find, were there no limit."""
        return Moved(self.old(part, ages).order_by().count(), None, self.young(part, ages))

    def young(self, part: Part, ages: Ages) -> bool:
        rows = Job.objects.using(self.alias).filter(pk__gt=part.after, pk__lte=part.upto).order_by("-pk")
        last = list(rows.values_list("pk", flat=True)[:1])
        newest = Job.objects.using(self.alias).filter(pk__in=last)
        return bool(newest.filter(created_at__gt=Clock() - ages.shortest).exists())

    @abstractmethod
    def forgettable(self, age: timedelta) -> list[str]:
        """Return the partitions all of whose jobs were archived longer ago."""

    @abstractmethod
    def drop(self, partition: str) -> None:
        """Drop a partition; raise InUse while somebody reads the archive, and Forbidden for want of a right."""

    @abstractmethod
    def delete(self, age: timedelta, limit: int) -> int:
        """Delete jobs that were archived longer ago; return how many."""

    def ends(self) -> tuple[int, int]:
        """Return the lowest and the highest id in the table of jobs, 0 and -1 if it is empty."""
        # min and max of one question: SQLite would read the whole table.
        one = "SELECT id FROM django_jobs_job ORDER BY id {} LIMIT 1"
        ((first, last),) = rows(self.engine, f"SELECT ({one.format('ASC')}), ({one.format('DESC')})")
        return (0, -1) if first is None or last is None else (first, last)

    def first(self, part: Part, ages: Ages) -> int | None:
        """Return the first job that `move` would take."""
        with transaction.atomic(using=self.alias):
            rows = self.old(part, ages).select_for_update(skip_locked=True)
            return rows.values_list("pk", flat=True).first()

    def old(self, part: Part, ages: Ages) -> JobQuerySet:
        rows: JobQuerySet = Job.objects.using(self.alias).filter(ages.over(), pk__gt=part.after, pk__lte=part.upto)
        return rows.order_by("pk")


def archive(alias: str | None = None) -> Archive:
    """Return the archive of the jobs' database."""
    found = engine(alias)
    if found.name == "postgresql":
        from django_jobs.engines.postgresql_archive import PostgreSQLArchive  # psycopg is there only with this vendor

        return PostgreSQLArchive(found)
    from django_jobs.engines.sqlite_archive import SQLiteArchive

    return SQLiteArchive(found)
