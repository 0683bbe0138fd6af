"""The log lines about schedules and schedulers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from django_jobs.log import is_to_be_said, say

# Schedules that a line each is said of when many were missed at once, as after an outage.
MISSED_SAID = 10


class Looked(NamedTuple):
    """What came of a look at one schedule."""

    name: str
    error: str
    missed: int
    dropped: int
    fired: int


def schedules_looked_at(found: Sequence[Looked]) -> None:
    for looked in found:
        if looked.error:
            say(logging.ERROR, "Schedule %s is broken: %s", looked.name, looked.error)
        elif looked.fired and not looked.missed:
            say(logging.DEBUG, "Schedule %s made %d jobs", looked.name, looked.fired)
    missed = [looked for looked in found if looked.missed and not looked.error]
    for looked in missed[:MISSED_SAID]:
        say(logging.WARNING, "Schedule %s missed %d slots: %d dropped, %d jobs made",
            looked.name, looked.missed, looked.dropped, looked.fired,
        )  # fmt: skip
    if more := missed[MISSED_SAID:]:
        say(logging.WARNING, "%d more schedules missed %d slots: %d dropped, %d jobs made",
            len(more), *(sum(number) for number in zip(*(item[2:5] for item in more), strict=True)),
        )  # fmt: skip


def schedule_act(name: str, what: str, by: str, why: str) -> None:
    say(logging.INFO, "Schedule %s is %s%s%s", name, what, f" by {by}" if by else "", f": {why}" if why else "")


def schedules_held(error: BaseException) -> None:
    if is_to_be_said("schedules held"):
        said = str(error).strip().split("\n")[0]
        say(
            logging.WARNING,
            "No jobs of schedules can be stored now, another transaction holds a table or rows: %s",
            said,
        )


def schedule_not_stored(name: str, place: str, error: str) -> None:
    say(logging.ERROR, "The schedule %s of %s cannot be used, and is left as it was: %s", name, place, error)


def scheduler_stopped() -> None:
    say(logging.ERROR, "The scheduler's thread had ended; it is started again")


def scheduler_refused(why: str) -> None:
    say(logging.ERROR, "No jobs of schedules are made, workers go on: %s", why)


def scheduler_started(schedules: int) -> None:
    say(logging.INFO, "Scheduler started: %d schedules", schedules)


def scheduler_ended(code: int) -> None:
    say(logging.INFO, "Scheduler stopped (exit %d)", code)
