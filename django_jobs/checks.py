"""System checks: each fault has an id, a hint, and an entry in docs/checks.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.apps.config import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, connections, transaction
from django.db.models import ForeignKey
from django.utils.module_loading import import_string

from django_jobs import conf, deployment, registry, router, test_environment
from django_jobs.engines import archive, engine, jobs_alias
from django_jobs.models import ArchivedJob, Job
from django_jobs.schedules import code, sync
from django_jobs.tasks import discovery

OLDEST_SQLITE = (3, 37)
OLDEST_POSTGRESQL = 15
ROUTER = "django_jobs.router.JobsRouter"
PASTE = 'DATABASES["{}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE", "timeout": 20}}'


@register("django_jobs")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    hint = "See docs/settings.md for the keys, their units and defaults."
    return [
        Error(fault, hint=hint, id="django_jobs.E001") for fault in _bad_settings() or _wrong_around(conf.conf().around)
    ]


def _wrong_around(path: str | None) -> list[str]:
    """Return what is wrong with AROUND that only an import can tell."""
    if path is None:
        return []
    said = f"DJANGO_JOBS['AROUND'] is {path!r}"
    try:
        found = import_string(path)
    except Exception as error:
        return [f"{said}; it cannot be imported: {error}"]
    return [] if callable(found) else [f"{said}; that is no function, and no class of context managers."]


def _bad_settings() -> list[str]:
    """Return what is wrong with the settings: what needs them is not looked at then."""
    return conf.problems(getattr(settings, "DJANGO_JOBS", {}))


@register("django_jobs")
def check_names(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return [
        Error(
            f"Two functions are registered as the job {first.name!r}: {first.place} and {second.place}.",
            hint="Give one of them another name: @job(name=...). Until then only the first one is ever run.",
            id="django_jobs.E002",
        )
        for first, second in registry.clashes()
    ]


@register("django_jobs")
def check_schedule_names(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return [
        Error(
            f"Two schedules are named {first.name!r}: that of {first.place} and that of {second.place}.",
            hint="Give one of them another name: @schedule(..., name=...). Until then only the first one is used.",
            id="django_jobs.E007",
        )
        for first, second in code.clashes()
    ]


@register("django_jobs")
def check_schedules(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    if _bad_settings():
        return []
    if any(found.of_task for found in code.schedules()):
        discovery.know_loaded()
    return [_bad_schedule(found, said) for found in code.schedules() if (said := sync.fault(found))]


def _bad_schedule(found: code.CodeSchedule, said: str) -> CheckMessage:
    if found.of_task and not discovery.ours():
        # Tests run tasks by other backends.
        return checks.Warning(
            f"The schedule {found.name!r} of {found.place} makes no jobs: TASKS has no backend of django_jobs.",
            hint=f"Give TASKS one whose BACKEND is {discovery.BACKEND!r}.",
            id="django_jobs.W007",
        )
    return Error(
        f"The schedule {found.name!r} of {found.place} cannot be used: {said}",
        hint="See docs/schedules.md for what a schedule may say. With --skip-checks it is left out, and others run.",
        id="django_jobs.E008",
    )


@register("django_jobs")
def check_database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    alias = jobs_alias()
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return _check_sqlite(alias)
    if connection.vendor != "postgresql":
        return [
            Error(
                f"The jobs' database {alias!r} is {connection.display_name}, which django_jobs cannot keep jobs in.",
                hint="Route the app django_jobs to PostgreSQL 15+ or SQLite by a database router.",
                id="django_jobs.E003",
            )
        ]
    return []


@register("django_jobs")
def check_router(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    wanted, found = router.wanted(), jobs_alias()
    if wanted is None or wanted == found:
        return []
    return [
        Error(
            f"DJANGO_JOBS['DATABASE'] is {wanted!r}, but the jobs are on {found!r}.",
            hint=f"Put {ROUTER!r} first in DATABASE_ROUTERS, or leave DATABASE out and have your own router decide.",
            id="django_jobs.E009",
        )
    ]


@register("django_jobs")
def check_immediate(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    if _bad_settings() or test_environment.is_set_up() or not conf.conf().immediate:
        return []
    return [
        checks.Warning(
            "DJANGO_JOBS['IMMEDIATE'] is on, and heeded in tests only: jobs wait for workers.",
            hint="Leave it to the settings of tests, and run `manage.py runworkers`.",
            id="django_jobs.W004",
        )
    ]


def _check_sqlite(alias: str) -> list[CheckMessage]:
    import sqlite3  # a worker on PostgreSQL need not carry it

    found: list[CheckMessage] = []
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        found.append(
            Error(
                f"SQLite {sqlite3.sqlite_version} is too old for django_jobs.",
                hint="Use a Python that is built with SQLite 3.37 or newer, or PostgreSQL.",
                id="django_jobs.E004",
            )
        )
    options = connections[alias].settings_dict.get("OPTIONS") or {}
    if str(options.get("transaction_mode", "")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            checks.Warning(
                f"Transactions on the SQLite database {alias!r} begin without the write lock, so one that reads before "
                'it writes fails with "database is locked" whenever a worker wrote meanwhile.',
                hint=f"Add to the settings: {PASTE.format(alias)}",
                id="django_jobs.W001",
            )
        )
    return found


@register("django_jobs")
def check_foreign_keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """No foreign key may point to a job: finished jobs go to the archive and are deleted in bulk."""
    return [
        Error(
            f"{model._meta.label}.{field.name} is a foreign key to a job.",
            hint="Keep the job's id in a BigIntegerField: finished jobs go to the archive, and are deleted in bulk in the end.",
            obj=model,
            id="django_jobs.E005",
        )
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_fields
        if isinstance(field, ForeignKey) and field.related_model in (Job, ArchivedJob)
    ]


@register(Tags.database)
def check_server(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    alias = jobs_alias()
    vendor = connections[alias].vendor
    if alias not in (databases or ()) or vendor not in ("postgresql", "sqlite"):
        return []
    found = _check_deployment(alias)
    return [*found, *_check_version(alias)] if vendor == "postgresql" else found


def _check_deployment(alias: str) -> list[CheckMessage]:
    if _bad_settings():
        return []
    try:
        with transaction.atomic(using=alias):
            said = deployment.mismatch(engine(alias), conf.conf().deployment)
    except DatabaseError:
        return []  # before the first migration, or who asks may not read it
    hint = "See docs/operating.md, A copy of another database."
    return [checks.Warning(said, hint=hint, id="django_jobs.W003")] if said else []


def _check_version(alias: str) -> list[CheckMessage]:
    version = connections[alias].get_database_version()
    if version[0] >= OLDEST_POSTGRESQL:
        return _check_archive(alias)
    return [
        Error(
            f"The jobs' database {alias!r} is PostgreSQL {version[0]}, which is too old for django_jobs.",
            hint=f"Upgrade the server to PostgreSQL {OLDEST_POSTGRESQL} or newer.",
            id="django_jobs.E006",
        )
    ]


def _check_archive(alias: str) -> list[CheckMessage]:
    if _bad_settings() or conf.conf().archive_for == 0:
        return []
    if archive.archive(alias).may_prepare():
        return []
    user = connections[alias].settings_dict["USER"]
    return [
        checks.Warning(
            f"The user {user!r} of the jobs' database {alias!r} may not make partitions of the archive: jobs that ended stay in "
            "the table of jobs for KEEP_DONE and ARCHIVE_FOR, and are deleted then.",
            hint="Let the user own the tables of django_jobs and create tables in their schema, or run `jobs archive` each day "
            "as one who may; see docs/retention.md.",
            id="django_jobs.W002",
        )
    ]
