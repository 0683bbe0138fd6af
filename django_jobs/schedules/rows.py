"""Reading the rows of many schedules, one of which may be such that it cannot even be read."""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.models.schedule import Schedule


def schedules(alias: str, ids: Sequence[int], *related: str) -> dict[int, Schedule | Exception]:
    """Return those that are there, by id; of one whose values the driver or Django cannot take, the error."""
    rows = Schedule.objects.using(alias)
    if related:
        rows = rows.select_related(*related)
    try:
        return {**rows.in_bulk(ids)}
    except Exception:
        found: dict[int, Schedule | Exception] = {}
        for pk in ids:
            try:
                found |= rows.in_bulk([pk])
            except Exception as error:
                found[pk] = error
        return found
