"""On PostgreSQL: the archive in partitions, and the table of jobs with settings of its own. Nothing that models know."""

from typing import Any

from django.db import migrations

JOBS = "django_jobs_job"
# A row is written three times: when it is stored, claimed and ended. With half of each page left free that happens on one
# page. Measured (PostgreSQL 15, 30,000 jobs, medians of three interleaved rounds), bytes of WAL for a job from its claim to
# its end, and with a heartbeat between; the rates were the same, and the table was the smallest with 50 in the end:
#
#     fillfactor   100     90     80    50
#     plain        936    894    843   686
#     heartbeat  1,406  1,286  1,139   835
#
# Vacuum by the default, when a fifth of the table is dead, would leave the index of waiting jobs to millions of entries of
# claimed ones. By a fixed number it would read the index of ids of a large table all the time.
SETTINGS = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_cost_limit": 2000,
    "autovacuum_analyze_scale_factor": 0.05,
    "autovacuum_analyze_threshold": 5000,
}
ARCHIVE = "django_jobs_archivedjob"
# The primary key of a partitioned table has to contain what the partitions are told by.
PARTITIONED = "PRIMARY KEY (id, archived_at)) PARTITION BY RANGE (archived_at)"
PLAIN = "PRIMARY KEY (id))"


def tune(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        given = ", ".join(f"{name} = {value}" for name, value in SETTINGS.items())
        schema_editor.execute(f"ALTER TABLE {JOBS} SET ({given})")


def untune(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE {JOBS} RESET ({', '.join(SETTINGS)})")


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

    operations = [migrations.RunPython(tune, untune), migrations.RunPython(partition, join)]
