"""The database router for jobs on a database of their own: DATABASE_ROUTERS = ["django_jobs.router.JobsRouter"]."""

from __future__ import annotations

from typing import Any

from django_jobs.conf import conf

APP = "django_jobs"


class JobsRouter:
    """Keeps the tables of django_jobs, and nothing else, on the database that the setting DATABASE names."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return conf().database if model._meta.app_label == APP else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Say yes to the tables of jobs on their database, no to them elsewhere and to all others there."""
        own = conf().database
        if own is None or own == "default":
            return None
        if app_label == APP:
            return db == own
        return False if db == own else None
