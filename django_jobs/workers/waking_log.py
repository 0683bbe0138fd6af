"""What is said about the waking of idle workers."""

from __future__ import annotations

import logging

from django_jobs.log import say


def listens() -> None:
    say(logging.INFO, "Idle workers are woken by NOTIFY when a job is enqueued")


def does_not_listen(interval: float, why: str) -> None:
    say(logging.WARNING, "Idle workers are not woken by NOTIFY, and look for jobs every %g s: %s", interval, why)


def listener_stopped() -> None:
    say(logging.ERROR, "The thread that listens for new jobs had ended; it is started again")
