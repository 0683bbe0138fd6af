"""What the project's log records say of the job in whose run they are emitted: `job_id`, `job_type`, `queue`, `attempt`."""

from __future__ import annotations

import logging
from typing import Any

from django_jobs.context import current

FIELDS = ("job_id", "job_type", "queue", "attempt")


class JobFilter(logging.Filter):
    """Give each record those of the running job and, outside of a run, `default`, so that a formatter may name them.

    Put it on handlers, where it meets the records of all loggers. What a record has by `extra=` stays.
    """

    def __init__(self, name: str = "", default: Any = "-") -> None:
        super().__init__(name)
        self.default = default

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return False
        context = current.get()
        for field in FIELDS:
            record.__dict__.setdefault(field, self.default if context is None else getattr(context, field))
        return True


class _InRuns(JobFilter):
    """What worker processes put on every handler: outside of a run it adds nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        return current.get() is None or super().filter(record)


def say_in_runs() -> None:
    """Have the handlers that there are in this process say of which job a record is.

    No record factory: `extra=` with one of these names, which is what projects call things, would raise KeyError then.
    """
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = {handler for found in loggers if isinstance(found, logging.Logger) for handler in found.handlers}
    for handler in handlers | ({logging.lastResort} if logging.lastResort else set()):
        if not any(isinstance(one, _InRuns) for one in handler.filters):
            handler.filters.insert(0, _InRuns())  # before the project's, which may ask for them
