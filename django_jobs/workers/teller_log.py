"""The log lines about telling receivers of signals."""

from __future__ import annotations

import logging

from django_jobs.log import is_to_be_said, say


def dropped(number: int, most: int) -> None:
    say(logging.WARNING,
        "%d signals were not sent: their receivers are too slow, and %d wait at most. Let receivers enqueue a job",
        number, most,
    )  # fmt: skip


def not_waited_for(seconds: float) -> None:
    if is_to_be_said("teller"):
        said = "A receiver of a signal has not come back for %g s: worker processes are started meanwhile"
        say(logging.WARNING, said, seconds)
