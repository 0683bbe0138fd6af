from __future__ import annotations

from functools import cache

from django.db import connections, router

from django_jobs.engines.base import Engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.models import Job


def jobs_alias() -> str:
    """Return the alias of the database that holds the jobs, as the project's routers say."""
    return router.db_for_write(Job)


def engine(alias: str | None = None) -> Engine:
    """Return the engine of the jobs' database; raise ConfigurationError for a vendor that has none."""
    return _engine(alias or jobs_alias())


@cache
def _engine(alias: str) -> Engine:
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        from django_jobs.engines.postgresql import PostgreSQLEngine  # psycopg is there only with this vendor

        return PostgreSQLEngine(alias)
    if vendor == "sqlite":
        from django_jobs.engines.sqlite import SQLiteEngine

        return SQLiteEngine(alias)
    raise ConfigurationError(
        f"The jobs' database {alias!r} is {vendor}; django_jobs keeps jobs in PostgreSQL 15+ or SQLite. "
        "Route the app django_jobs to such a database."
    )
