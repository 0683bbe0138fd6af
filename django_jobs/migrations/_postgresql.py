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


def tune(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        given = ", ".join(f"{name} = {value}" for name, value in SETTINGS.items())
        schema_editor.execute(f"ALTER TABLE {JOBS} SET ({given})")


def partition(apps: Any, schema_editor: Any) -> None:
    """Put a partitioned table with the same columns and defaults in the place of the one that was just made."""
    if schema_editor.connection.vendor != "postgresql":
        return
    run = schema_editor.execute
    run(f"ALTER TABLE {ARCHIVE} RENAME TO {ARCHIVE}_before")
    run(f"ALTER TABLE {ARCHIVE}_before RENAME CONSTRAINT {ARCHIVE}_pkey TO {ARCHIVE}_before_pkey")
    # The primary key of a partitioned table has to contain what the partitions are told by.
    run(
        f"CREATE TABLE {ARCHIVE} (LIKE {ARCHIVE}_before INCLUDING DEFAULTS, "
        f"CONSTRAINT {ARCHIVE}_pkey PRIMARY KEY (id, archived_at)) PARTITION BY RANGE (archived_at)"
    )
    run(f"DROP TABLE {ARCHIVE}_before")


# The way back is that of the tables themselves, which are dropped.
operations = [migrations.RunPython(step, migrations.RunPython.noop) for step in (tune, partition)]
