"""What is written beside outcomes: the latest progress that each run reported, and what was counted."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import InterfaceError, OperationalError

from django_jobs import log
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Run
from django_jobs.workers.tally import Tallies


class Reports:
    """Handlers' threads keep reports, one thread stores them."""

    def __init__(self, incarnation: str) -> None:
        self._latest: dict[Run, str] = {}
        self.tallies = Tallies(incarnation)

    def __bool__(self) -> bool:
        return bool(self._latest)

    @property
    def due(self) -> bool:
        """Whether there is something to be written that is not written with outcomes."""
        return bool(self._latest) or self.tallies.due

    def keep(self, run: Run, progress: str) -> None:
        self._latest[run] = progress

    def latest(self, run: Run) -> str | None:
        return self._latest.get(run)

    def drop(self, run: Run) -> None:
        self._latest.pop(run, None)

    def store(self, engine: Engine, runs: Iterable[Run] | None = None) -> None:
        """Store the latest progress of these runs, or of all, if they reported any."""
        if not self._latest:
            return
        asked = list(self._latest) if runs is None else runs
        taken = {run: self._latest.pop(run) for run in asked if run in self._latest}
        if not taken:
            return
        try:
            engine.store_progress(list(taken.items()))
        except (OperationalError, InterfaceError, OSError):
            for run, progress in taken.items():
                self._latest.setdefault(run, progress)
            raise
        except Exception:
            log.loop_failed("Storing progress")  # it is for looking at: the outcome goes on without it
