"""The database router for jobs on a database of their own: DATABASE_ROUTERS = ["django_jobs.router.JobsRouter"]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

APP = "django_jobs"


def wanted() -> str | None:
    """Return the alias that the setting DATABASE names; None if there is none such.

    Other settings are not looked at: Django asks its routers before, and while, a check says what is wrong with those.
    """
    given = getattr(settings, "DJANGO_JOBS", None)
    found = given.get("DATABASE") if isinstance(given, Mapping) else None
    return found if isinstance(found, str) and found in settings.DATABASES else None


def migrate(alias: str) -> str:
    """Return the command that makes the tables on a database."""
    return "manage.py migrate" if alias == "default" else f"manage.py migrate --database={alias}"


class JobsRouter:
    """Keeps the tables of django_jobs, and nothing else, on the database that the setting DATABASE names."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return wanted() if model._meta.app_label == APP else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Say yes to the tables of jobs on their database, no to them elsewhere and to all others there."""
        own = wanted()
        if own is None or own == "default":
            return None
        if app_label == APP:
            return db == own
        return False if db == own else None
