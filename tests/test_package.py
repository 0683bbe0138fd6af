"""The package as a whole: which way imports point, its SQL files, its migrations, and what loading it does."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections

import django_jobs
from django_jobs import exceptions
from django_jobs.models import ArchivedJob, Job, Pause, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_jobs"

# A line may import from the lines above it and, where it is a package, from itself.
LAYERS = [
    ["texts", "signals", "test_environment"],
    ["exceptions"],
    ["cron", "zones", "durations"],
    ["slots"],
    ["outcomes", "backoff", "payload", "shapes", "redacted_text"],
    ["conf", "context"],
    ["router", "checked"],
    ["models"],
    ["registry", "options", "logging"],
    ["calls", "redact"],
    ["redact_folded"],
    ["engines"],
    ["log", "tracing"],
    ["notify", "receivers"],
    ["pauses", "pausable", "deployment"],
    ["waiting"],
    ["queue", "explain", "alerts"],
    ["schedules", "effects", "processes"],
    ["decorators"],
    ["scheduled", "bulk"],
    ["workers"],
    ["tasks"],
    ["tasks_backend"],
    ["report", "report_schedules", "measures", "checks"],
    ["monitoring"],
    ["testing"],
    ["admin"],
    ["templatetags"],
    ["doctor", "views"],
    ["urls"],
    ["management", "apps"],
]
# The sentence needs settings and workers, the acts engines; the model offers them as methods.
AGAINST = {("models", "explain"), ("models", "queue"), ("models", "schedules")}


def modules() -> dict[str, ast.Module]:
    """Return the trees of the package's modules by dotted name, without its migrations."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "migrations" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(), str(path))
    return found


def imports(tree: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """Return the modules of the package that a tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def at_import(tree: ast.Module) -> ast.Module:
    """Return what of a module runs when it is imported."""
    kept = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))]
    top = ast.Module(body=[], type_ignores=[])
    top.body = [node for node in kept if isinstance(node, ast.Import | ast.ImportFrom)]
    return top


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


@pytest.mark.fast
def test_every_module_has_its_place_in_the_layers() -> None:
    assert sorted(name for names in LAYERS for name in names) == sorted({part(name) for name in modules()} - {""})


@pytest.mark.fast
def test_imports_point_one_way() -> None:
    known = modules()
    line = {name: number for number, names in enumerate(LAYERS) for name in names}
    against = set()
    for name, tree in known.items():
        for other in imports(tree, known):
            if not other.startswith("django_jobs") or name == "django_jobs" or part(other) == part(name):
                continue
            assert other != "django_jobs", f"{name} imports a name from the package itself: say from which module"
            if line[part(other)] >= line[part(name)]:
                against.add((part(name), part(other)))
    assert against == AGAINST


@pytest.mark.fast
def test_imports_make_no_circle() -> None:
    known = modules()
    graph = {
        name: {other for other in imports(at_import(tree), known) if other in known and other != "django_jobs"}
        for name, tree in known.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(known)


def extras() -> dict[str, list[str]]:
    """Return what each extra of the package asks for, by the names on the package index."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return {
        extra: [re.split(r"[\[<>=; ]", line)[0] for line in asked.split("\n") if line]
        for extra, asked in setup["options.extras_require"].items()
    }


@pytest.mark.fast
def test_every_extra_is_installed_somewhere() -> None:
    files = ("README.md", "setup.cfg", "tox.ini", ".ci/run")
    used = set(re.findall(r"\[(\w+)\]\"|django_jobs\[(\w+)\]", "".join((ROOT / name).read_text() for name in files)))
    assert set(extras()) == {name for pair in used for name in pair if name}


@pytest.mark.fast
def test_the_page_on_internals_says_what_each_package_is_for() -> None:
    page = (ROOT / "docs" / "internals.md").read_text().partition("**Dependencies.**")[2].lower()
    needed = {name for names in extras().values() for name in names} - {"django_jobs"}
    assert [name for name in sorted(needed) if name not in page] == []


@pytest.mark.fast
def test_every_sql_file_is_used_and_every_statement_has_its_file() -> None:
    calls = ("statement", "_rows", "_claimed", "row_of", "begin")
    used = {
        given.value
        for name, tree in modules().items()
        if name.startswith("django_jobs.engines.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) in calls
        for given in node.args[:2]
        if isinstance(given, ast.Constant) and isinstance(given.value, str)
    }
    files = list((PACKAGE / "engines" / "sql").glob("*.sql"))
    assert used == {path.stem for path in files}
    for path in files:
        text = path.read_text()
        assert text.startswith("-- "), f"{path.name} says who calls it and why it is as it is"
        assert ";" not in "".join(text.splitlines(keepends=True)[-1:]), f"{path.name} is one statement"


@pytest.mark.fast
def test_no_clock_but_the_databases_is_read_for_stored_times() -> None:
    wrong = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if (owner, node.attr) in {
                    ("timezone", "now"),
                    ("datetime", "now"),
                    ("datetime", "utcnow"),
                    ("datetime", "today"),
                    ("date", "today"),
                    ("time", "time"),
                }:
                    wrong.append(f"{name}:{node.lineno} {owner}.{node.attr}")
            elif isinstance(node, ast.keyword) and node.arg in ("auto_now", "auto_now_add"):
                wrong.append(f"{name} {node.arg}")
    assert wrong == []


# Migrations.


@pytest.mark.django_db(databases="__all__")
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "django_jobs", check=True, dry_run=True, verbosity=0)


def schema(alias: str) -> dict[str, Any]:
    """Return the columns, indexes and constraints of our tables, without numbers that the database gives."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        return {
            model._meta.db_table: (
                [
                    field._replace(internal_size=None)
                    for field in connection.introspection.get_table_description(cursor, model._meta.db_table)
                ],
                connection.introspection.get_constraints(cursor, model._meta.db_table),
            )
            for model in (ArchivedJob, Job, Pause, Worker)
            if model._meta.db_table in tables
        }


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_migrations_go_back_to_nothing_and_forth_again(engine: Engine) -> None:
    before = schema(engine.alias)
    assert set(before) == {"django_jobs_archivedjob", "django_jobs_job", "django_jobs_pause", "django_jobs_worker"}
    try:
        call_command("migrate", "django_jobs", "zero", database=engine.alias, verbosity=0)
        assert schema(engine.alias) == {}
    finally:
        call_command("migrate", "django_jobs", database=engine.alias, verbosity=0)
    assert schema(engine.alias) == before


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_migrations_send_nothing_of_postgresql_to_sqlite() -> None:
    texts = {}
    for alias in ("default", "lite"):
        out = StringIO()
        for path in sorted((PACKAGE / "migrations").glob("0*.py")):
            call_command("sqlmigrate", "django_jobs", path.stem, database=alias, stdout=out, no_color=True)
        texts[alias] = out.getvalue().lower()
    words = ["varchar_pattern_ops", "jsonb", "timestamp with time zone", "statement_timestamp", "::", " using "]
    assert [word for word in words if word in texts["lite"]] == []
    assert [word for word in words[:4] if word not in texts["default"]] == []


# Loading.


def python(code: str, **environment: str) -> Any:
    """Run code in an interpreter of its own and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_exception_that_the_code_of_a_project_meets_is_exported() -> None:
    met = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }
    assert met - set(django_jobs.__all__) == {"ConfigurationError"}, "that one is for our commands"


def test_the_package_is_imported_before_there_are_apps_or_settings() -> None:
    found = python(
        "import json, sys, django_jobs\n"
        "from django.apps import apps\n"
        "from django.conf import settings\n"
        "made = django_jobs.Backoff().ceiling(3), sorted(django_jobs.__all__) == django_jobs.__all__\n"
        "print(json.dumps([*made, apps.ready, settings.configured, 'django_jobs.models' in sys.modules]))"
    )
    assert found == [18.0, True, False, False, False]


NOWHERE = {"ENGINE": "django.db.backends.postgresql", "NAME": "none", "HOST": "127.0.0.1", "PORT": "1"}


def test_setting_up_finds_the_jobs_and_neither_connects_nor_starts_a_thread() -> None:
    found = python(
        "import json, threading, django\n"
        "django.setup()\n"
        "from django.db import connections\n"
        "from django_jobs import registry\n"
        "connected = [found.alias for found in connections.all() if found.connection is not None]\n"
        "print(json.dumps([registry.names(), connected, threading.active_count()]))",
        DJANGO_SETTINGS_MODULE="tests.settings",
        DJANGO_JOBS_TEST_DATABASES=json.dumps({"default": NOWHERE}),
    )
    names, connected, threads = found
    assert "tests.app.jobs.nothing" in names
    assert (connected, threads) == ([], 1)
