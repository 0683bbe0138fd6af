from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from django_jobs.conf import Conf

# How long a run that has passed its deadline is given before an exception is raised in it, and then again before its
# process is replaced. No setting: whoever needs longer to clean up sets an earlier `timeout`.
PATIENCE = 5.0
LONGEST_CUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all worker processes of one supervisor have in common."""

    alias: str
    settings: Conf
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    supervisor_pid: int
    # Known by nobody else: pids and hosts are alike in containers.
    supervisor: str = field(default_factory=lambda: uuid.uuid4().hex)
    burst: bool
    schedule: bool = True
    patience: float = field(default_factory=lambda: PATIENCE)

    def of_process(self, solo: bool) -> Plan:
        """Return what is to be done in one worker process: all that many of them share, or one suspect alone."""
        if solo:
            settings = replace(self.settings, threads=1, max_jobs_per_process=None, max_process_memory=None)
        else:
            settings = replace(self.settings, solo_memory=None)
        return replace(self, settings=settings)

    @property
    def late_after(self) -> float:
        """How many seconds after its deadline a run that did not end costs its process."""
        return 2 * self.patience

    @staticmethod
    def cut_at(end: float, grace: float) -> float:
        """Return when async runs are cancelled that may last until `end`, so that they have ended by then."""
        return end - min(LONGEST_CUT_SECONDS, grace / 4)
