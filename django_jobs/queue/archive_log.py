"""The log lines about the archive."""

from __future__ import annotations

import logging

from django_jobs.log import say

# Rows in the way are named once in each process, and so many of them; the others are counted.
MOST_NAMED = 20
_named: set[int] = set()
_refusals: set[str] = set()


def archived(archived: int, deleted: int, forgotten: int) -> None:
    say(logging.INFO, "%d jobs that ended long ago were archived, %d deleted, %d archived ones deleted",
        archived, deleted, forgotten,
    )  # fmt: skip


def dropped(partition: str) -> None:
    say(logging.INFO, "The partition %s of the archive was dropped: its jobs were kept for ARCHIVE_FOR", partition)


def not_dropped(partition: str, why: str) -> None:
    say(logging.INFO, "The partition %s of the archive cannot be dropped now, and is tried again: %s", partition, why)


def stuck(job_id: int, why: str) -> None:
    if job_id not in _named and len(_named) < MOST_NAMED:
        _named.add(job_id)
        say(logging.WARNING, "Job %d cannot be taken out of the table of jobs, and is passed over: %s", job_id, why)


def many_stuck(number: int) -> None:
    say(logging.WARNING, "%d jobs cannot be taken out of the table of jobs; `jobs archive` names them", number)


def cannot_archive(why: str) -> None:
    if why not in _refusals:
        _refusals.add(why)
        say(logging.WARNING,
            "No partition of the archive can be made (%s): jobs stay where they are for KEEP_DONE and ARCHIVE_FOR, and are "
            "deleted then. Have somebody run `jobs archive` who may, or see docs/retention.md",
            why,
        )  # fmt: skip
