"""In which order a list goes through the jobs that are asked for, so that an index serves the order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import F, QuerySet

from django_jobs.models import Job
from django_jobs.models.clock import for_row
from django_jobs.queue.sought import Sought, keyed, numbered

Order = tuple[str, ...]
AS_CLAIMED: Order = ("queue", "-priority", "run_at", "id")
AS_PARKED: Order = ("type", "queue", "-priority", "run_at", "id")
BY_DUE_TIME: Order = ("run_at", "id")
LAST_ENDED: Order = ("-finished_at", "-id")
NEWEST: Order = ("-id",)
# The same, so that PostgreSQL does not read the table by its ids: few rows that another index holds are sorted.
NEWEST_OF_FEW: Order = ("-turn",)
ORDERS = {
    "due": AS_CLAIMED,
    "later": AS_CLAIMED,
    "retries": BY_DUE_TIME,
    "dead-letters": LAST_ENDED,
    "dead": LAST_ENDED,
    "failed": LAST_ENDED,
    "cancelled": LAST_ENDED,
}
# What is told by the index of a state, beside a span of its times.
BY_INDEX = {"due": {"queue", "priority"}, "later": {"queue", "priority"}, "parked": {"type", "queue", "priority"}}
KEYS_FOUND = 1_000
# Ids are given a little before or after the times that rows get.
SLACK = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Strand:
    """Jobs in the order of an index that holds no others."""

    rows: QuerySet[Any]
    order: Order


@dataclass(frozen=True, slots=True)
class Way:
    """The strands of a list, one after the other. `rest` is what has to be read of their rows; of None, nothing is.
    `is_cut`: there may be jobs in none of them.
    """

    strands: list[Strand]
    rest: Sought | None = None
    is_cut: bool = False


def way(sought: Sought, table: QuerySet[Any], *, archived: bool = False) -> Way:
    """Return how the jobs that are asked for are gone through."""
    if sought.key and (not archived or numbered(sought.key)):
        return _keyed(sought, table)
    if sought.state == "running" and not archived:
        return Way([Strand(sought.rows(table).annotate(turn=F("id") + 0), NEWEST_OF_FEW)])
    if archived or sought.state in ("", "done"):
        first = not archived and sought.state == "" and sought.reads_errors
        return _errors_first(sought, table) if first else _newest(sought, table)
    if sought.state == "parked":
        return _parked(sought, table)
    return _told(sought, [Strand(Sought(state=sought.state).rows(table), ORDERS[sought.state])])


def way_of_waiting(sought: Sought, table: QuerySet[Any]) -> Way:
    """Return how all jobs that wait are gone through, whatever state is asked for."""
    claimable = Strand(table.filter(status=Job.Status.READY, parked__isnull=True), AS_CLAIMED)
    narrowed = _told(replace(sought, state="due"), [claimable])
    return Way([*narrowed.strands, *_parked(replace(sought, state="parked"), table).strands], sought)


def _parked(sought: Sought, table: QuerySet[Any]) -> Way:
    suspects = Strand(table.filter(parked=Job.Parked.SUSPECT), BY_DUE_TIME)
    others = Strand(table.filter(parked__in=[Job.Parked.TYPE, Job.Parked.PAUSE]), AS_PARKED)
    if sought.parked == Job.Parked.SUSPECT:
        return _told(replace(sought, parked=""), [suspects])
    return _told(sought, [others] if sought.parked else [suspects, others])


def _keyed(sought: Sought, table: QuerySet[Any]) -> Way:
    """Ask for the keys first: with the list's own order beside them, PostgreSQL may prefer to read the table in that order."""
    rows = keyed(table, sought.key) if table.model is Job else table.none()
    found = list(rows.values_list("pk", flat=True)[:KEYS_FOUND])
    among = table.filter(pk__in=[*numbered(sought.key), *found])
    return Way([Strand(replace(sought, key="").rows(among), NEWEST)], is_cut=len(found) == KEYS_FOUND)


def _told(sought: Sought, strands: list[Strand]) -> Way:
    """Narrow strands of a state by what their index tells; leave the rest to be read."""
    by_index = BY_INDEX.get(sought.state, set())
    told = replace(Sought(), **{name: getattr(sought, name) for name in by_index})
    left = {name: None if name == "priority" else "" for name in by_index}
    rest = replace(sought, state="", since=None, until=None, **left)  # type: ignore[arg-type]
    narrowed = [Strand(told.by_columns(sought.in_span(strand.rows)), strand.order) for strand in strands]
    return Way(narrowed, rest if rest != Sought() else None)


def _newest(sought: Sought, table: QuerySet[Any]) -> Way:
    """Return all rows from the newest on; those of a span of time by where their ids begin and end."""
    times = {
        "pk__lt": sought.until + SLACK if sought.until is not None else None,
        "pk__gte": sought.since - SLACK if sought.since is not None and sought.moment == "created_at" else None,
    }
    given = {bound: moment for bound, moment in times.items() if moment is not None}
    rows = table.filter(**dict(zip(given, first_ids(table, list(given.values())), strict=True)))
    if sought == Sought(since=sought.since, until=sought.until):
        return Way([Strand(sought.rows(rows), NEWEST)])
    return Way([Strand(rows, NEWEST)], sought)


def _errors_first(sought: Sought, table: QuerySet[Any]) -> Way:
    """Return dead letters before the others, most of which have no error."""
    others = table.exclude(status__in=Job.DEAD_LETTERS)
    return Way([Strand(Sought(state="dead-letters").rows(table), LAST_ENDED), Strand(others, NEWEST)], sought)


_HALVED = """
WITH RECURSIVE asked (place, moment) AS (VALUES {asked}),
halved (place, moment, low, high) AS (
    SELECT place, moment, (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table}) + 1 FROM asked
     UNION ALL
    SELECT place, moment,
           CASE WHEN (SELECT created_at FROM {table} WHERE id >= (low + high) / 2 ORDER BY id LIMIT 1) < moment
                THEN (low + high) / 2 + 1 ELSE low END,
           CASE WHEN (SELECT created_at FROM {table} WHERE id >= (low + high) / 2 ORDER BY id LIMIT 1) < moment
                THEN high ELSE (low + high) / 2 END
      FROM halved
     WHERE low < high
)
SELECT max(low) FROM halved GROUP BY place ORDER BY place
"""


def first_ids(table: QuerySet[Any], moments: list[datetime]) -> list[int]:
    """Return for each time the id from which on jobs were made then or later, by halving: there is no index of times."""
    if not moments:
        return []
    connection = connections[table.db]
    given = [connection.ops.adapt_datetimefield_value(for_row(moment, table.db)) for moment in moments]
    asked = ", ".join(f"({place}, %s)" for place, _ in enumerate(given))
    with connection.cursor() as cursor:
        cursor.execute(_HALVED.format(asked=asked, table=table.model._meta.db_table), given)
        return [int(low or 0) for (low,) in cursor.fetchall()]
