"""On PostgreSQL: the archive in partitions, and the table of jobs with settings of its own. Nothing that models know."""

from typing import Any

from django.db import migrations

ARCHIVE = "django_jobs_archivedjob"
# The primary key of a partitioned table has to contain what the partitions are told by.
PARTITIONED = "PRIMARY KEY (id, archived_at)) PARTITION BY RANGE (archived_at)"
PLAIN = "PRIMARY KEY (id))"


def partition(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        _make_anew(schema_editor, PARTITIONED)


def join(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        _make_anew(schema_editor, PLAIN)


def _make_anew(schema_editor: Any, kind: str) -> None:
    """Put the table with these columns, defaults and rows in the place of the one that is there."""
    run = schema_editor.execute
    run(f"ALTER TABLE {ARCHIVE} RENAME TO {ARCHIVE}_before")
    run(f"ALTER TABLE {ARCHIVE}_before RENAME CONSTRAINT {ARCHIVE}_pkey TO {ARCHIVE}_before_pkey")
    run(f"CREATE TABLE {ARCHIVE} (LIKE {ARCHIVE}_before INCLUDING DEFAULTS, CONSTRAINT {ARCHIVE}_pkey {kind}")
    if not schema_editor.collect_sql:
        _copy(schema_editor, kind)
    run(f"DROP TABLE {ARCHIVE}_before")


def _copy(schema_editor: Any, kind: str) -> None:
    with schema_editor.connection.cursor() as cursor:
        days = "date_trunc('day', {} AT TIME ZONE 'UTC')"
        cursor.execute(
            f"SELECT to_char({days.format('min(archived_at)')}, 'YYYY-MM-DD'), "
            f"to_char({days.format('max(archived_at)')} + interval '1 day', 'YYYY-MM-DD') FROM {ARCHIVE}_before"
        )
        first, last = cursor.fetchone()
        if first is None:
            return
        if kind == PARTITIONED:
            cursor.execute(
                f"CREATE TABLE {ARCHIVE}_{first.replace('-', '')} PARTITION OF {ARCHIVE} "
                f"FOR VALUES FROM ('{first} 00:00+00') TO ('{last} 00:00+00')"
            )
        cursor.execute(f"INSERT INTO {ARCHIVE} SELECT * FROM {ARCHIVE}_before")


class Migration(migrations.Migration):
    dependencies = [("django_jobs", "0001_initial")]

    operations = [migrations.RunPython(partition, join)]
