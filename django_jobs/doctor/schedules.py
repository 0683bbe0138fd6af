"""Schedules that make no jobs though they should, or make them though the code no longer has them."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs import report_schedules
from django_jobs.doctor.findings import Finding, names
from django_jobs.engines.base import Engine

LOOKED_AT = 1000
REMEDIES = {
    "overdue": "Start `manage.py runworkers`, or `manage.py runscheduler`, with the code that has their jobs.",
    "broken": "`jobs schedules --state broken` says what is wrong with each; correct it in the admin or in the code.",
    "orphaned": "Pause or delete them in the admin if they are no longer wanted; else deploy the code that has them.",
}


def unwell(engine: Engine) -> Iterator[Finding]:
    for state, remedy in REMEDIES.items():
        rows = report_schedules.schedules(state=state, count=1, limit=LOOKED_AT)
        if rows:
            yield Finding(
                f"schedules_{state}",
                f"{len(rows)} schedules are {state}: {names([row['name'] for row in rows])}. {rows[0]['reason']}",
                remedy,
            )


def only_in_code(engine: Engine) -> Iterator[Finding]:
    found = report_schedules.only_in_code()
    if found:
        yield Finding(
            "schedules_not_stored",
            f"No scheduler has stored {names(found)} of the code yet.",
            "Start `manage.py runworkers` or `manage.py runscheduler` with this code.",
        )


CHECKS = (unwell, only_in_code)
