"""The archive's migration goes both ways, with what is in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command

from tests.archive.common import ended, go_round
from tests.engines.common import on_postgresql, sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

whole = pytest.mark.django_db(transaction=True, databases="__all__")


def primary_key(engine: Engine) -> list[str]:
    with engine.connection.cursor() as cursor:
        found = engine.connection.introspection.get_constraints(cursor, "django_jobs_archivedjob")
    (columns,) = (item["columns"] for item in found.values() if item["primary_key"])
    return list(columns)


def migrate(engine: Engine, name: str) -> None:
    call_command("migrate", "django_jobs", name, database=engine.alias, verbosity=0)


@whole
def test_the_tables_can_be_taken_away_and_made_again(engine: Engine) -> None:
    try:
        migrate(engine, "zero")
        tables = engine.connection.introspection.table_names()
        assert [name for name in tables if name.startswith("django_jobs_")] == []
    finally:
        migrate(engine, "0001")
    ended(engine, "done", 2)
    assert go_round(engine).archived == 1


@whole
@on_postgresql
def test_the_primary_key_has_the_time_that_tells_the_partitions(engine: Engine) -> None:
    assert primary_key(engine) == ["id", "archived_at"]
    assert sql(
        engine, "SELECT partstrat FROM pg_partitioned_table WHERE partrelid = 'django_jobs_archivedjob'::regclass"
    )


@whole
@on_postgresql
def test_the_table_of_jobs_has_settings_of_its_own(engine: Engine) -> None:
    ((options,),) = sql(engine, "SELECT reloptions FROM pg_class WHERE oid = 'django_jobs_job'::regclass")
    assert "fillfactor=50" in options
    assert any(option.startswith("autovacuum_vacuum_scale_factor=") for option in options)
