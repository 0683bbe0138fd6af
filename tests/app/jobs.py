from __future__ import annotations

from django_jobs import job


@job
def nothing(number: int = 0) -> int:
    return number
