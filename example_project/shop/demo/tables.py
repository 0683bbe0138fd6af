"""Makes the tables, and makes the embedded database anew when an earlier version of this code made them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from example_project import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.utils import CursorWrapper
    from django.db.migrations.state import StateApps

APPS = ("django_jobs", "shop")


def prepare(say: Callable[[str], None]) -> None:
    """Bring the tables up to date. Raises CommandError with exit code 2 where only a person can."""
    connection.ensure_connection()
    if found := differences():
        _refuse_or_empty(found, say)
    call_command("migrate", verbosity=0, interactive=False)
    if _is_ours():
        _made_by().write_text(_fingerprint())


def _is_ours() -> bool:
    return database.chosen is not None and database.chosen.kind != "given"


def _made_by() -> Path:
    """Return the file beside our own database with the fingerprint of the migrations that made it."""
    return database.VAR / f"made-by-{connection.vendor}"


def _fingerprint() -> str:
    """Return what changes with every change of a migration, also one that keeps all names."""
    digest = hashlib.sha256()
    for app in APPS:
        for path in sorted(Path(apps.get_app_config(app).path, "migrations").glob("0*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def differences() -> list[str]:
    """Return what the tables have otherwise than the applied migrations, as they are today, would have made it."""
    loader = MigrationLoader(connection)
    applied = [key for key in loader.applied_migrations if key[0] in APPS]
    gone = [key for key in applied if key not in loader.graph.nodes]
    if gone:
        return [f"the applied migration {app}.{name} does not exist any more" for app, name in gone]
    if not applied:
        return []
    found = list(_table_differences(loader.project_state(applied).apps))
    if not found and _is_ours() and (not _made_by().exists() or _made_by().read_text() != _fingerprint()):
        return ["its migrations were changed since"]
    return found


def _table_differences(state: StateApps) -> Iterator[str]:
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        for model in state.get_models():
            options = model._meta
            if options.app_label not in APPS or not options.managed or options.proxy:
                continue
            if options.db_table not in tables:
                yield f"there is no table {options.db_table}"
                continue
            columns = {found.name for found in connection.introspection.get_table_description(cursor, options.db_table)}
            wanted = {str(field.column) for field in options.local_concrete_fields}
            rules = {str(rule.name) for rule in (*options.indexes, *options.constraints)}
            missing = (wanted - columns) | (rules - _rules_of(cursor, options.db_table))
            for name in sorted(missing | (columns - wanted)):
                yield f"{options.db_table}: {name} {'is missing' if name in missing else 'is not known'}"


def _rules_of(cursor: CursorWrapper, table: str) -> set[str]:
    return set(connection.introspection.get_constraints(cursor, table))


def _refuse_or_empty(found: list[str], say: Callable[[str], None]) -> None:
    reason = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
    choice = database.chosen
    if choice is None or choice.kind == "given":
        raise CommandError(
            f"The tables in the database of DATABASE_URL were made by another version of this code ({reason}). "
            "Drop that database, create it anew, and run this again; or leave out DATABASE_URL.",
            returncode=2,
        )
    if choice.attached:
        raise CommandError(
            f"The database was made by another version of this code ({reason}), and another process uses it. "
            "End that one, then run this again.",
            returncode=2,
        )
    say(f"The demo's database was made by another version of this code ({reason}): it is made anew.")
    if choice.kind == "embedded":
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA public CASCADE")
            cursor.execute("CREATE SCHEMA public")
    else:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            database.SQLITE_FILE.with_name(database.SQLITE_FILE.name + suffix).unlink(missing_ok=True)
