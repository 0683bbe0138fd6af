from __future__ import annotations

from dataclasses import dataclass

from django_jobs.conf import Conf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all worker processes of one supervisor have in common."""

    alias: str
    settings: Conf
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    supervisor_pid: int
    burst: bool
