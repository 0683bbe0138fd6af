"""Puts the jobs on the database that the running test is about, so that one session tests both engines."""

from __future__ import annotations

from typing import Any

jobs_alias = "default"


class JobsRouter:
    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return jobs_alias if model._meta.app_label == "django_jobs" else None

    db_for_write = db_for_read
