"""In which order a list goes through the jobs that are asked for, so that an index serves the order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import F, QuerySet

from django_jobs.models import Job
from django_jobs.models.clock import for_row
from django_jobs.queue.sought import Sought, numbered

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
    """The strands of a list, one after the other. `rest` is what has to be read of their rows; of None, nothing is."""

    strands: list[Strand]
    rest: Sought | None = None


def way(sought: Sought, table: QuerySet[Any], *, archived: bool = False) -> Way:
    """Return how the jobs that are asked for are gone through."""
    if sought.key and (not archived or numbered(sought.key)):
        return Way([_keyed(sought, table)])
    if sought.state == "running" and not archived:
        return Way([Strand(sought.rows(table).annotate(turn=F("id") + 0), NEWEST_OF_FEW)])
    if archived or sought.state in ("", "done"):
        return _newest(sought, table, errors_first=not archived and sought.state == "" and sought.reads_errors)
    if sought.state == "parked":
        return _parked(sought, table)
    return _of_state(sought, [Strand(table, ORDERS[sought.state])])


def _parked(sought: Sought, table: QuerySet[Any]) -> Way:
    suspects = Strand(table.filter(parked=Job.Parked.SUSPECT), BY_DUE_TIME)
    others = Strand(table.filter(parked__in=[Job.Parked.TYPE, Job.Parked.PAUSE]), AS_PARKED)
    if sought.parked == Job.Parked.SUSPECT:
        return _of_state(replace(sought, parked=""), [suspects])
    return _of_state(sought, [others] if sought.parked else [suspects, others])


def _keyed(sought: Sought, table: QuerySet[Any]) -> Strand:
    """Ask for the keys first: with the list's own order beside them, PostgreSQL may prefer to read the table in that order."""
    keyed = table.filter(idempotency_key__startswith=sought.key) if table.model is Job else table.none()
    found = [*numbered(sought.key), *keyed.order_by().values_list("pk", flat=True)[:KEYS_FOUND]]
    return Strand(replace(sought, key="").rows(table.filter(pk__in=found)), NEWEST)


def _of_state(sought: Sought, strands: list[Strand]) -> Way:
    by_index = BY_INDEX.get(sought.state, set())
    left = {name: None if name == "priority" else "" for name in by_index}
    rest = replace(sought, state="", since=None, until=None, **left)  # type: ignore[arg-type]
    told = replace(Sought(state=sought.state, since=sought.since, until=sought.until), **_values(sought, by_index))
    narrowed = [Strand(told.rows(strand.rows), strand.order) for strand in strands]
    return Way(narrowed, rest if rest != Sought() else None)


def _values(sought: Sought, names: set[str]) -> dict[str, Any]:
    return {name: getattr(sought, name) for name in names}


def _newest(sought: Sought, table: QuerySet[Any], *, errors_first: bool = False) -> Way:
    """Return all rows from the newest on; those of a span of time by where their ids begin and end.

    `errors_first`: retries and dead letters before the others, most of which have no error.
    """
    rows, rest = table, sought
    if sought.until is not None:
        rows = rows.filter(pk__lt=first_id(table, sought.until + SLACK))
    if sought.moment == "created_at" and sought.since is not None:
        rows = rows.filter(pk__gte=first_id(table, sought.since - SLACK))
    if rest == Sought(since=sought.since, until=sought.until):
        rows, rest = rest.rows(rows), Sought()
    strands = [Strand(rows, NEWEST)]
    if errors_first:
        first = {state: Sought(state=state).rows(table) for state in ("retries", "dead-letters")}
        others = rows.exclude(status__in=Job.DEAD_LETTERS).exclude(status="ready", parked__isnull=True, attempts__gt=0)
        strands = [*(Strand(found, ORDERS[state]) for state, found in first.items()), Strand(others, NEWEST)]
    return Way(strands, rest if rest != Sought() else None)


_HALVED = """
WITH RECURSIVE halved (low, high) AS (
    SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table}) + 1
     UNION ALL
    SELECT CASE WHEN (SELECT created_at FROM {table} WHERE id >= (low + high) / 2 ORDER BY id LIMIT 1) < %s
                THEN (low + high) / 2 + 1 ELSE low END,
           CASE WHEN (SELECT created_at FROM {table} WHERE id >= (low + high) / 2 ORDER BY id LIMIT 1) < %s
                THEN high ELSE (low + high) / 2 END
      FROM halved
     WHERE low < high
)
SELECT max(low) FROM halved
"""


def first_id(table: QuerySet[Any], moment: Any) -> int:
    """Return the id from which on jobs were made at a time or later, by halving: there is no index of times."""
    alias = table.db
    connection = connections[alias]
    given = connection.ops.adapt_datetimefield_value(for_row(moment, alias))
    with connection.cursor() as cursor:
        cursor.execute(_HALVED.format(table=table.model._meta.db_table), [given, given])
        (found,) = cursor.fetchone()
    return int(found or 0)
