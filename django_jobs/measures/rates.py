"""What worker processes did within a span of time: how much, how quickly, and with what success; from `models.Stat`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast

from django_jobs.measures.counted import LISTS, Counted, added, counted
from django_jobs.models import Stat
from django_jobs.models.clock import for_row, from_row
from django_jobs.models.stat import SUMS

# No more rows are read: what is older than the last of them is left out, and said to be.
MOST = 50_000
MINUTE = 60
# The share of jobs that failed in a minute beyond which somebody should look, where at least so many ended.
MANY_FAILED, LEAST_ENDED = 0.05, 10
_REPEATS = SUMS.index("repeats")
# A process stores a minute's last numbers so many seconds after it at most, if it lives; see `workers.tally`.
SETTLED_AFTER = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Span:
    """A time to look back on, and the parts of a plot of it, in seconds: whole multiples of the rows of that age.

    `since`: when it begins; None for so many seconds ago.
    """

    seconds: int
    width: int
    since: datetime | None = None

    def start(self, now: datetime) -> datetime:
        return self.since or _floor(now, self.width) - timedelta(seconds=self.seconds - self.width)


SPANS = {"1h": Span(3600, 60), "24h": Span(86_400, 1200), "7d": Span(604_800, 7200)}
# The width of the parts of a span that began less than so many seconds ago; a day can have 25 hours.
WIDTHS = {3600: 60, 43_200: 600, 172_800: 1200}


def span_since(start: datetime, now: datetime) -> Span:
    """Return the span from a time on, up to two days before `now`."""
    seconds = int((now - start).total_seconds())
    return Span(seconds, next(width for most, width in WIDTHS.items() if seconds < most), start)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A part of a span, and what ended in it."""

    since: datetime
    until: datetime
    counted: Counted


@dataclass(frozen=True, slots=True)
class Rates:
    """What ended from `since` to `at`, by the database's clock in UTC.

    `total`, `types` and `series` are of all queues or of the one that was asked for; the others are always of all. The last
    bucket is not full yet. Missing are what running processes did in the last seconds, and what killed ones did in
    theirs. `minute`: what ended in each queue in the last minute that is complete, which began at `minute_at`. `is_cut`: the
    span has more rows than are read, and only what is newer than `since` is counted. `repeats_in_hour`: those of the
    last hour, whatever the span.
    """

    since: datetime
    at: datetime
    total: Counted
    queues: dict[str, Counted]
    types: dict[str, Counted]
    series: list[Bucket]
    minute: dict[str, Counted]
    minute_at: datetime
    is_cut: bool
    repeats_in_hour: int

    @property
    def last_minute(self) -> tuple[int, int]:
        """How many jobs were done and how many failed in the last minute that is complete."""
        every = self.minute.values()
        return sum(one.done for one in every), sum(one.unsuccessful for one in every)

    @property
    def many_failed(self) -> bool:
        """Whether so many of those failed that somebody should look; of a few that ended, nothing can be said."""
        done, failed = self.last_minute
        return done + failed >= LEAST_ENDED and failed > MANY_FAILED * (done + failed)


class _Row(NamedTuple):
    minute: datetime
    seconds: int
    queue: str
    type: str
    vector: Sequence[float]


def rates(alias: str, span: Span, now: datetime, queue: str | None = None) -> Rates:
    """Add up what ended in a span that ends `now`, the database's time, in one query; of one queue if it is given.

    A span of so many seconds begins with a whole bucket, so it is shorter than asked for by less than one.
    """
    since = span.start(now)
    full = _floor(now - SETTLED_AFTER, MINUTE) - timedelta(seconds=MINUTE)
    hour = now - timedelta(hours=1)
    rows = _read(alias, min(since, full, hour))
    is_cut = len(rows) >= MOST
    if is_cut:
        since = max(since, _floor(rows[-1].minute, span.width) + timedelta(seconds=span.width))
    lately = sum(row.vector[_REPEATS] for row in rows if row.minute >= hour)
    last = [row for row in rows if row.minute == full and row.seconds == MINUTE]
    rows = [row for row in rows if row.minute >= since]
    buckets = {minute: (minute - since) // timedelta(seconds=span.width) for minute in {row.minute for row in rows}}
    # Each row is added up once, and the few sums are then what all others are made of.
    parts = _grouped(((buckets[row.minute], row.queue, row.type), row.vector) for row in rows)
    queues = _grouped((name, vector) for (_place, name, _type), vector in parts.items())
    if queue is not None:
        parts = {key: vector for key, vector in parts.items() if key[1] == queue}
    types = _grouped((job_type, vector) for (_place, _queue, job_type), vector in parts.items())
    return Rates(
        since=since,
        at=now,
        total=counted(added(types.values())),
        queues=_named(queues),
        types=_named(types),
        series=_series(_grouped((key[0], vector) for key, vector in parts.items()), since, now, span.width),
        minute=_named(_grouped((row.queue, row.vector) for row in last)),
        minute_at=full,
        is_cut=is_cut,
        repeats_in_hour=int(lately),
    )


def _read(alias: str, since: datetime) -> list[_Row]:
    """Return the rows since then, the newest first."""
    texts = {f"{name}_text": Cast(name, TextField()) for name in LISTS}
    stats = Stat.objects.using(alias).filter(minute__gte=for_row(since, alias)).annotate(**texts)
    columns = ("minute", "seconds", "queue", "type", *SUMS, *texts)
    found = list(stats.order_by("-minute").values_list(*columns)[:MOST])
    lists = [
        _parsed([row[-place] for row in found], LISTS[name]) for place, name in enumerate(reversed(LISTS), start=1)
    ]
    times = {minute: from_row(minute, alias) for minute in {row[0] for row in found}}
    return [
        _Row(times[row[0]], row[1], row[2], row[3], [*row[4 : 4 + len(SUMS)], *runs, *waits, *attempts])
        for row, attempts, waits, runs in zip(found, *lists, strict=True)
    ]


def _parsed(texts: list[str], length: int) -> list[Any]:
    """Return JSON lists of numbers, each of that length: all at once, which is several times as quick as one by one."""
    rest = [0] * length
    lists = json.loads(f"[{','.join(texts)}]")
    return [found if len(found) == length else (found + rest)[:length] for found in lists]


def _grouped(pairs: Iterable[tuple[Any, Sequence[float]]]) -> dict[Any, Sequence[float]]:
    groups: dict[Any, list[Sequence[float]]] = defaultdict(list)
    for key, vector in pairs:
        groups[key].append(vector)
    return {key: vectors[0] if len(vectors) == 1 else added(vectors) for key, vectors in groups.items()}


def _named(groups: dict[str, Sequence[float]]) -> dict[str, Counted]:
    return {name: counted(vector) for name, vector in sorted(groups.items())}


def _series(groups: dict[int, Sequence[float]], since: datetime, now: datetime, width: int) -> list[Bucket]:
    """Return equal parts of the span, each with what is of rows that begin in it."""
    step = timedelta(seconds=width)
    number = (now - since) // step + 1
    return [
        Bucket(
            since + index * step, since + (index + 1) * step, counted(groups[index]) if index in groups else Counted()
        )
        for index in range(number)
    ]


def _floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)
