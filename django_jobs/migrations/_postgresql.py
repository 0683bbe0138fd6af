"""On PostgreSQL: the archive in partitions, and the table of jobs with settings and a constraint of its own.

Models know nothing of it. A later migration that changes a CHECK constraint of the jobs' model has to change RULES with it.
"""

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


# The same as the CHECK constraints of the model, by their names, in one: PostgreSQL reads a constraint from its catalogue
# anew for each statement, and the whole text of these six took 38 of the 125 us that an INSERT of one job takes of the server.
# A function is compiled once in a session: 12 us, of which the conditions are 4.
COLUMNS = {
    "status": "varchar",
    "locked_by": "varchar",
    "locked_until": "timestamptz",
    "finished_at": "timestamptz",
    "key_holds": "varchar",
    "parked": "varchar",
    "priority": "smallint",
    "attempts": "integer",
    "max_attempts": "integer",
    "losses": "integer",
    "token": "bigint",
}
RULES = {
    "django_jobs_status": "status IN ('ready', 'running', 'done', 'failed', 'dead', 'cancelled')",
    "django_jobs_lease": (
        "CASE WHEN status = 'running' THEN locked_by IS NOT NULL AND locked_until IS NOT NULL "
        "ELSE locked_by IS NULL AND locked_until IS NULL END"
    ),
    "django_jobs_finished": "(finished_at IS NULL) = (status IN ('ready', 'running'))",
    "django_jobs_key_holds": "key_holds IN ('window', 'unfinished', 'waiting')",
    "django_jobs_parked_ready": "parked IS NULL OR status = 'ready'",
    "django_jobs_numbers": (
        "priority BETWEEN -100 AND 100 AND attempts >= 0 AND max_attempts >= 1 AND losses >= 0 "
        "AND token BETWEEN 0 AND 1000000000000000"
    ),
}
# Named for what it does, and for who is told of it: what breaks a rule is refused in the words of a CHECK constraint.
FUNCTION = f"""
CREATE FUNCTION django_jobs_sound({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())})
    RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
DECLARE
    broken text;
BEGIN
    IF {" AND ".join(f"({rule})" for rule in RULES.values())} THEN
        RETURN true;
    END IF;
    broken := CASE {" ".join(f"WHEN NOT ({rule}) THEN '{name}'" for name, rule in RULES.items())} END;
    RAISE EXCEPTION 'new row for relation "{JOBS}" violates check constraint "%"', broken
        USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = '{JOBS}';
END
$body$
"""


def constrain(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "postgresql":
        return
    run = schema_editor.execute
    run(FUNCTION, None)
    # Where functions are not everybody's by default, whoever may write jobs may still call this one.
    run("GRANT EXECUTE ON FUNCTION django_jobs_sound TO PUBLIC")
    drops = ", ".join(f"DROP CONSTRAINT {name}" for name in RULES)
    # Those of a table with defaults are made at the end of the migration, after which they can be dropped.
    schema_editor.deferred_sql.append(
        f"ALTER TABLE {JOBS} {drops}, ADD CONSTRAINT django_jobs_sound CHECK (django_jobs_sound({', '.join(COLUMNS)}))"
    )


def relax(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE {JOBS} DROP CONSTRAINT django_jobs_sound")
        schema_editor.execute("DROP FUNCTION django_jobs_sound")


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


# The way back is that of the tables themselves, which are dropped. A function is not dropped with a table.
operations = [
    *(migrations.RunPython(step, migrations.RunPython.noop) for step in (tune, partition)),
    migrations.RunPython(constrain, relax),
]
