"""Which jobs a person means, and going through them in small steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Max, Min, Q
from django.db.models.functions import Now

from django_jobs.engines import jobs_alias
from django_jobs.models import Job, JobQuerySet

BATCH = 100
# Ids that a step looks at, at most: so none takes long, however few of many rows are meant.
SPAN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Jobs by their ids, or by what they are. `older_than`: seconds since they ended or, if they have not, were made."""

    states: tuple[str, ...]
    ids: tuple[int, ...] | None = None
    queue: str | None = None
    type: str | None = None
    older_than: float | None = None
    limit: int | None = None

    def rows(self) -> JobQuerySet:
        rows: JobQuerySet = Job.objects.using(jobs_alias()).filter(status__in=self.states)
        if self.queue is not None:
            rows = rows.filter(queue=self.queue)
        if self.type is not None:
            rows = rows.filter(type=self.type)
        if self.older_than is not None:
            before = Now() - timedelta(seconds=self.older_than)
            rows = rows.filter(Q(finished_at__lt=before) | Q(finished_at__isnull=True, created_at__lt=before))
        return rows

    def batches(self) -> Iterator[list[int]]:
        """Return the ids, in their order, some at a time; each batch is read when it is asked for."""
        found = self._given() if self.ids is not None else self._walked(self.rows())
        left = self.limit
        for batch in found:
            yield batch if left is None else batch[:left]
            if left is not None:
                left -= len(batch)
                if left <= 0:
                    return

    def _given(self) -> Iterator[list[int]]:
        ids = sorted(set(self.ids or ()))
        for start in range(0, len(ids), BATCH):
            yield ids[start : start + BATCH]

    def _walked(self, rows: JobQuerySet) -> Iterator[list[int]]:
        table = Job.objects.using(rows.db)
        ends = table.aggregate(first=Min("pk"), last=Max("pk"))
        low, last = (ends["first"] or 0) - 1, ends["last"] or -1
        while low < last:
            high = min(low + SPAN, last)
            part = rows.filter(pk__gt=low, pk__lte=high).order_by("pk")
            batch = list(part.values_list("pk", flat=True)[:BATCH])
            if batch:
                yield batch
            low = batch[-1] if len(batch) == BATCH else high
