from __future__ import annotations

import time
from contextlib import AbstractContextManager

from django.db import OperationalError

from django_jobs import log
from django_jobs.engines.base import Engine
from django_jobs.exceptions import EnqueueTimeout
from django_jobs.router import migrate
from django_jobs.workers.connections import answer_timeout, connect_timeout, statement_timeout, still_works
from django_jobs.workers.outage import Breaks, Outage
from django_jobs.workers.watchdog import guarded

UNDEFINED_TABLE, UNDEFINED_COLUMN = "42P01", "42703"
LOCK_NOT_AVAILABLE, QUERY_CANCELED = "55P03", "57014"
READ_ONLY, DISK_FULL = "25006", "53100"


class Link:
    """A thread's connection to the jobs' database: made, watched over, and told from an outage when something fails."""

    def __init__(self, engine: Engine, outage: Outage, lease: float, role: str = "") -> None:
        self._engine = engine
        self._role = role
        self._lease = lease
        self._outage = outage
        self._breaks = Breaks(lease)
        self._raw: object = None

    @property
    def cut_off(self) -> bool:
        return self._outage.lasts

    def connect(self) -> None:
        self._engine.prepare(statement_timeout(self._lease), self._role)
        self._raw = self._engine.connection.connection

    def guarded(self) -> AbstractContextManager[None]:
        """Return what cuts the connection when a statement in the block gets no answer in time."""
        return guarded(self._engine.alias, answer_timeout(self._lease))

    def end(self) -> None:
        """Leave the database; an outage that this thread noticed is no longer its."""
        self._outage.leave()
        self.close()

    def close(self) -> None:
        self._engine.connection.close()

    def check(self) -> float:
        """Note that the database was reached; return the seconds to wait when it cannot be written yet, else 0."""
        return self._outage.check(self._probe)

    def failed(self, what: str, error: Exception) -> float | None:
        """Find out what an error means; return the seconds until the next try, None when the connection is none the worse."""
        with self.guarded():
            usable = still_works(self._engine.alias, self._raw)
        began = time.monotonic()
        if not self._probe():
            self.close()
            if self._outage.reached_since(began):  # the probe set out too early: another thread is through by now
                return self._breaks.pause()
            return self._outage.failed(error)
        if self._outage.lasts:
            self._outage.over()  # it was sent in the last moments of the outage
        elif usable:
            if not could_not_write(error):
                log.loop_failed(what)
        else:
            log.connection_broke(self._outage.process, error)
        if usable:
            return None
        self.close()
        return self._breaks.pause()

    def _probe(self) -> bool:
        return self._engine.probe(timeout=connect_timeout(self._lease))


def missing_tables(error: Exception, alias: str) -> str:
    """Return what to say of an error when it is that tables or columns are missing, else nothing."""
    said = str(error).strip().split("\n")[0]
    state = getattr(error.__cause__, "sqlstate", None)
    # SQLite says it with the class that it has for everything.
    of_sqlite = isinstance(error, OperationalError) and said.startswith("no such")
    if state not in (UNDEFINED_TABLE, UNDEFINED_COLUMN) and not of_sqlite:
        return ""
    return f"The tables of django_jobs are not as this version needs them ({said}); run `{migrate(alias)}`."


def is_locked(error: Exception) -> bool:
    """Tell whether an error is that a lock was waited for in vain."""
    return isinstance(error, EnqueueTimeout) or getattr(error.__cause__, "sqlstate", None) == LOCK_NOT_AVAILABLE


def could_not_write(error: Exception) -> bool:
    """Tell whether an error is what an outage makes of a statement: where a probe succeeds, it was over a moment later."""
    return getattr(error.__cause__, "sqlstate", None) in (READ_ONLY, DISK_FULL)


def took_too_long(error: Exception) -> bool:
    """Tell whether an error is that a statement was given up by the server, as behind a lock on a whole table."""
    return getattr(error.__cause__, "sqlstate", None) in (LOCK_NOT_AVAILABLE, QUERY_CANCELED)
