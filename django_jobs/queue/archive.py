"""Taking old jobs out of the table of jobs, in steps so short that nobody waits for them, and forgetting them in the end."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import DatabaseError, DataError, IntegrityError, InternalError

from django_jobs.conf import Conf, conf
from django_jobs.engines.archive import Ages, Archive, Forbidden, InUse, Moved, Part
from django_jobs.queue import archive_log

# What a row can be the reason of, and an exception of PostgreSQL's that a trigger raised. Of other errors, as of a database that
# is away or a table that is missing, no row is.
ROW_ERRORS = (IntegrityError, DataError, InternalError)
RAISED = "P0001"
# After a step that took less, twice as many ids are looked at, and half as many after one that took more.
SHORT_STEP, LONG_STEP = 0.02, 0.2
MOST_IDS = 1_000_000
# A pause is so many times as long as the step before it.
REST = 3.0
DROP_TRIES, DROP_PAUSE = 10, 0.1
MOST_NAMED = 1000


@dataclass(slots=True)
class Came:
    """What came of a round."""

    archived: int = 0
    # Of the table of jobs, and of the archive.
    deleted: int = 0
    forgotten: int = 0
    dropped: list[str] = field(default_factory=list)
    # Partitions that could not be dropped now, and why.
    in_use: dict[str, str] = field(default_factory=dict)
    # Jobs that could not be taken: how many, and why the first of them.
    stuck: int = 0
    reasons: dict[int, str] = field(default_factory=dict)
    # Why nothing can be put into the archive.
    refused: str = ""
    # Another process was at it, and nothing was done.
    elsewhere: bool = False


class Round:
    """Goes once through the table of jobs, along the ids, from the lowest to those of jobs that are too young."""

    def __init__(self, archive: Archive, *, rest: float = REST, dry_run: bool = False) -> None:
        settings = conf()
        self.came = Came()
        self._archive = archive
        self._rest = rest
        self._dry_run = dry_run
        self._ages = ages(settings)
        self._keep = settings.archive_for > 0
        self._archived_for = timedelta(seconds=settings.archive_for)

    def steps(self) -> Iterator[float]:
        """Do a step whenever the next one is asked for; return the seconds to pause after it."""
        try:
            with self._archive.turn() as mine:
                self.came.elsewhere = not mine
                if mine:
                    yield from self._empty()
                    yield from self._forget()
        finally:  # it may be closed in the midst
            if self.came.archived or self.came.deleted or self.came.forgotten:
                archive_log.archived(self.came.archived, self.came.deleted, self.came.forgotten)
        if self.came.stuck > archive_log.MOST_NAMED:
            archive_log.many_stuck(self.came.stuck)

    def prepare(self) -> None:
        """See that there is a place for what is archived today, also for others who may not make it."""
        if self._keep and not self._dry_run:
            self._may_keep()

    def _empty(self) -> Iterator[float]:
        """Empty the table of jobs of those that are old."""
        (first, last), most = self._archive.ends(), self._archive.most
        after, span, limit = first - 1, 4 * most, most
        while after < last:
            began = time.monotonic()
            part = Part(after, min(after + span, last), limit)
            try:
                moved = self._step(part)
            except DatabaseError as error:
                if not is_of_a_row(error):
                    raise
                # By halves down to the row that is the reason.
                limit //= 2
                if not limit:
                    after, limit = self._pass_over(part, error), 1
            else:
                full = moved.number >= limit and not self._dry_run
                if moved.young and not full:
                    return
                after = moved.last if full and moved.last is not None else part.upto
                limit = min(2 * limit, most)
            took = time.monotonic() - began
            span = _next_span(span, took)
            yield took * self._rest

    def _step(self, part: Part) -> Moved:
        keep, over = self._keep, self._ages
        if keep and not self._dry_run and not self._may_keep():
            # So nothing is gone before its time, and the table does not grow for ever.
            keep, over = False, over.longer(self._archived_for)
        moved = self._archive.count(part, over) if self._dry_run else self._archive.move(part, over, keep)
        if keep:
            self.came.archived += moved.number
        else:
            self.came.deleted += moved.number
        return moved

    def _may_keep(self) -> bool:
        try:
            self._archive.prepare()
        except Forbidden as error:
            archive_log.cannot_archive(str(error))
            self.came.refused = str(error)
            return False
        return True

    def _pass_over(self, part: Part, error: Exception) -> int:
        """Leave the first old job where it is, since it cannot be taken even alone; return its id."""
        job_id = self._archive.first(part, self._ages)
        if job_id is None:
            return part.upto
        self.came.stuck += 1
        if len(self.came.reasons) < MOST_NAMED:
            self.came.reasons[job_id] = reason(error)
        archive_log.stuck(job_id, reason(error))
        return job_id

    def _forget(self) -> Iterator[float]:
        """Drop, or delete, what was archived longer ago than it is to be kept."""
        by_rows = not self._archive.by_partitions
        for partition in self._archive.forgettable(self._archived_for):
            if self._dry_run:
                self.came.dropped.append(partition)
            else:
                by_rows |= yield from self._drop(partition)
        if by_rows and not self._dry_run:
            yield from self._delete()

    def _drop(self, partition: str) -> Generator[float, None, bool]:
        """Drop a partition if it can be had within about a second; return whether its rows are to be deleted instead."""
        why = ""
        for _ in range(DROP_TRIES):
            try:
                self._archive.drop(partition)
            except Forbidden:
                return True
            except InUse as error:
                why = str(error)
                yield DROP_PAUSE
            except ROW_ERRORS as error:
                why = reason(error)
                break
            else:
                self.came.dropped.append(partition)
                archive_log.dropped(partition)
                return False
        self.came.in_use[partition] = why
        archive_log.not_dropped(partition, why)
        return False

    def _delete(self) -> Iterator[float]:
        number = most = self._archive.most
        while number == most:
            began = time.monotonic()
            number = self._archive.delete(self._archived_for, most)
            self.came.forgotten += number
            yield (time.monotonic() - began) * self._rest


def is_of_a_row(error: DatabaseError) -> bool:
    return isinstance(error, ROW_ERRORS) or getattr(error.__cause__, "sqlstate", None) == RAISED


def reason(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _next_span(span: int, took: float) -> int:
    if took > LONG_STEP:
        return max(span // 2, 1)
    return min(2 * span, MOST_IDS) if took < SHORT_STEP else span


def ages(settings: Conf) -> Ages:
    return Ages(
        done=timedelta(seconds=settings.keep_done),
        dead=timedelta(seconds=settings.dead_retention),
        keyed=timedelta(seconds=settings.idempotency_window),
    )
