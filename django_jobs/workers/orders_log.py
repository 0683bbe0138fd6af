"""The log lines about what people ask of worker processes."""

from __future__ import annotations

import logging

from django_jobs.log import say


def quiet(pid: int, quiet: bool) -> None:
    what = "claims nothing more, as a person asked; its runs go on" if quiet else "claims again"
    say(logging.INFO, "Worker process %d %s", pid, what)
