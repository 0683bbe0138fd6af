"""Whether the tables are as the models say, and are kept small."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db.models import UniqueConstraint

from django_jobs.conf import conf
from django_jobs.doctor.findings import Finding, names
from django_jobs.engines.archive import archive
from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.engines.health import Snapshot, health

# Partitions are dropped some time after nobody needs them.
LATE_DROP = timedelta(days=2)

_INVALID = """
SELECT index.relname FROM pg_index
  JOIN pg_class index ON index.oid = indexrelid
 WHERE indrelid = to_regclass(%s) AND NOT (indisvalid AND indisready)
"""
_AUTOVACUUM = """
SELECT current_setting('autovacuum') = 'on' AND NOT EXISTS (
           SELECT 1 FROM unnest(reloptions) option WHERE option ~ '^autovacuum_enabled=(false|off|no|0)')
  FROM pg_class WHERE oid = to_regclass('django_jobs_job')
"""


def indexes(engine: Engine) -> Iterator[Finding]:
    """Name what a migration made and somebody has dropped, with the statement that makes it again."""
    for model in apps.get_app_config("django_jobs").get_models():
        table = model._meta.db_table
        with engine.connection.cursor() as cursor:
            there = set(engine.connection.introspection.get_constraints(cursor, table))
        wanted = [*model._meta.indexes, *(x for x in model._meta.constraints if isinstance(x, UniqueConstraint))]
        invalid = _invalid(engine, table)
        for index in wanted:
            if index.name not in there:
                yield _index(engine, model, index, "missing", "")
            elif index.name in invalid:
                yield _index(
                    engine, model, index, "invalid, so that it is written and never used", f"DROP INDEX {index.name}; "
                )


def _index(engine: Engine, model: Any, index: Any, state: str, before: str) -> Finding:
    with engine.connection.schema_editor(collect_sql=True, atomic=False) as editor:
        add = editor.add_constraint if isinstance(index, UniqueConstraint) else editor.add_index
        add(model, index)
        statements = " ".join(str(line) for line in editor.collected_sql)
    # Others go on writing meanwhile.
    online = statements.replace("INDEX", "INDEX CONCURRENTLY", 1) if engine.name == "postgresql" else statements
    return Finding(
        "index", f"The index {index.name} of {model._meta.db_table} is {state}.", f"Make it again: {before}{online}"
    )


def _invalid(engine: Engine, table: str) -> set[str]:
    if engine.name != "postgresql":
        return set()
    return {row[0] for row in rows(engine, _INVALID, [table])}


def autovacuum(engine: Engine) -> Iterator[Finding]:
    if engine.name == "postgresql" and not rows(engine, _AUTOVACUUM)[0][0]:
        yield Finding(
            "autovacuum_off",
            "Nobody removes dead rows from the table of jobs, of which each job leaves some: autovacuum is off.",
            "Set autovacuum = on in the server's configuration, and `ALTER TABLE django_jobs_job RESET (autovacuum_enabled)`.",
        )


def bloat(engine: Engine) -> Iterator[Finding]:
    found = health(engine)
    if found is not None and found.is_bloated:
        yield Finding(
            "bloat",
            f"Of the table of jobs {found.dead_rows:,} rows are dead and {found.live_rows:,} live, in "
            f"{found.size / 2**20:,.0f} MiB with its indexes; claims have to pass by them.",
            "See whether somebody holds them back (old_snapshot); else VACUUM django_jobs_job, and where it stays large, "
            "REINDEX TABLE CONCURRENTLY django_jobs_job.",
        )


def old_snapshot(engine: Engine) -> Iterator[Finding]:
    found = health(engine)
    snapshot = found and found.snapshot
    if not snapshot or not snapshot.is_old:
        return
    since = "" if snapshot.seconds is None else f" for {snapshot.seconds:.0f} s"
    yield Finding(
        "old_snapshot",
        f"No dead row can be removed that is newer than the snapshot of {_holder(snapshot)}, held{since}.",
        _end_of(snapshot),
    )


def _holder(snapshot: Snapshot) -> str:
    if snapshot.kind == "prepared":
        return f"the prepared transaction {snapshot.application_name!r} of {snapshot.user}"
    if snapshot.kind == "slot":
        return f"the replication slot {snapshot.application_name} ({snapshot.state})"
    application = f" ({snapshot.application_name})" if snapshot.application_name else ""
    state = f", {snapshot.state}" if snapshot.state else ""
    return f"session {snapshot.pid} of {snapshot.user}{application}{state}"


def _end_of(snapshot: Snapshot) -> str:
    if snapshot.kind == "prepared":
        return f"Decide it: COMMIT PREPARED or ROLLBACK PREPARED {_text(snapshot.application_name)}."
    if snapshot.kind == "slot":
        return f"Have its standby follow, or SELECT pg_drop_replication_slot({_text(snapshot.application_name)})."
    return f"Have it end its transaction, or SELECT pg_terminate_backend({snapshot.pid}). Reports belong on a standby."


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def old_partitions(engine: Engine) -> Iterator[Finding]:
    found = archive(engine.alias)
    if not found.by_partitions:
        return
    old = found.forgettable(timedelta(seconds=conf().archive_for) + LATE_DROP)
    if old:
        yield Finding(
            "old_partitions",
            f"{len(old)} partitions of the archive are older than ARCHIVE_FOR and still there: {names(old)}.",
            "`runworkers` drops them while it runs; `jobs archive` does it now and says what is in the way.",
        )


CHECKS = (indexes, autovacuum, bloat, old_snapshot, old_partitions)
