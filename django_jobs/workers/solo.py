"""A process for one suspect, that is a job which may have killed its process: it runs alone, and its process ends."""

from __future__ import annotations

import os

from django_jobs import log
from django_jobs.queue import convictions
from django_jobs.workers.claims import Claimer
from django_jobs.workers.worker import Worker


class SoloClaimer(Claimer):
    """Claims one suspect if there is any, and nothing after it."""

    _asked = False
    taken: tuple[int, ...] = ()

    @property
    def finished(self) -> bool:
        return self._asked and self._executor.in_hand <= 0

    @property
    def idle(self) -> bool:
        return False

    def step(self) -> float:
        self._give_back_unanswered()
        if not self._asked:
            found = self._send(self._engine.claim_suspect, 1)
            self._asked = True
            self.taken = tuple(claimed.id for claimed in found.jobs)
            for claimed in found.jobs:
                log.runs_alone(os.getpid(), claimed)
            self._assign(found, 1)
        self.full = True
        return self._plan.settings.poll_interval if self._executor.in_hand > 0 else 0.0


class SoloWorker(Worker):
    """Registers, claims, runs and stores as any worker process does, once."""

    _claims = SoloClaimer
    _claimer: SoloClaimer

    def _say_ready(self) -> None:
        pass  # it says what it runs

    def _leave(self) -> None:
        try:
            self._prepare()
            with self._guarded():
                convictions.review(self._engine, self._claimer.taken)
        except Exception:
            log.loop_failed("Counting convictions")
        super()._leave()
