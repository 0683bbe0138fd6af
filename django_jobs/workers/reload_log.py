"""What is said by the process that starts the workers again when code changes."""

from __future__ import annotations

import logging
from pathlib import Path

from django_jobs.log import say


def watching(how: str) -> None:
    say(logging.INFO, "The workers are started again when code changes (%s; --no-reload switches that off)", how)


def changed(path: Path) -> None:
    say(logging.INFO, "%s changed: the workers stop, and are started again", path)


def waits_at_start() -> None:
    say(logging.ERROR, "The code cannot be imported, as shown above; this command starts again when code changes")


def starts_again(path: Path) -> None:
    say(logging.WARNING, "%s changed: this command starts again", path)


def waits_for_change(code: int) -> None:
    say(logging.ERROR, "The workers ended (exit %d); they are started again when code changes", code)
