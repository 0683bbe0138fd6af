from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.db import connections, models
from django.test.utils import _TestState, isolate_apps

from django_jobs import checks, engines, registry
from django_jobs.models import ArchivedJob, Job
from tests.app.jobs import nothing

pytestmark = pytest.mark.fast
DOCS = Path(__file__).parent.parent / "docs" / "checks.md"


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


@pytest.mark.django_db(databases="__all__")
def test_a_sound_project_has_nothing_to_report(vendor: str) -> None:
    assert [message for message in run_checks() if str(message.id).startswith("django_jobs")] == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("text", "it must be a dict"),
        ({"LEESE": 3}, "unknown key 'LEESE'"),
        ({"LEASE": "3"}, "DJANGO_JOBS['LEASE'] is '3'; give seconds"),
        ({"LEASE": -1}, "DJANGO_JOBS['LEASE'] is -1"),
        ({"THREADS": True}, "DJANGO_JOBS['THREADS'] is True"),
        ({"HEARTBEAT": 20}, "HEARTBEAT may be at most a third of LEASE"),
        ({"KEEP_DONE": 172_800}, "IDEMPOTENCY_WINDOW must be at least KEEP_DONE"),
        ({"KEEP_DONE": 20}, "KEEP_DONE must be at least LEASE"),
        ({"DEAD_RETENTION": 20}, "DEAD_RETENTION must be at least LEASE"),
        ({"KEEP_DONE": 0}, "DJANGO_JOBS['KEEP_DONE'] is 0"),
        ({"ARCHIVE_FOR": -1}, "DJANGO_JOBS['ARCHIVE_FOR'] is -1"),
        ({"ARCHIVE_FOR": False}, "DJANGO_JOBS['ARCHIVE_FOR'] is False"),
        ({"ARCHIVE_FOR": None}, "DJANGO_JOBS['ARCHIVE_FOR'] is None"),
        ({"QUEUES": "mail"}, "give a list of queue names"),
        ({"BACKOFF": (1, 2)}, "its three numbers"),
        (
            {"DATABASE": "jobs"},
            "DJANGO_JOBS['DATABASE'] is 'jobs'; give an alias of DATABASES ('default', 'lite'), or None",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_errors(settings: Any, given: object, says: str) -> None:
    settings.DJANGO_JOBS = given
    (message,) = checks.check_settings(None)
    assert (message.id, bool(message.hint)) == ("django_jobs.E001", True)
    assert says in message.msg


@pytest.fixture
def clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_clashes", [])
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    other = replace(nothing.job_type, function=clash_function)
    registry.register(other)


def clash_function(number: int = 0) -> int:
    return number


def test_two_functions_under_one_name_are_an_error_and_the_first_stays(clash: None) -> None:
    (message,) = checks.check_names(None)
    assert message.id == "django_jobs.E002"
    assert re.search(
        r"tests\.app\.jobs\.nothing \(line \d+\) and tests\.test_checks\.clash_function \(line \d+\)\.$", message.msg
    )
    assert registry.find(nothing.name) is nothing.job_type


def test_two_functions_of_one_name_in_one_module_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_clashes", [])
    monkeypatch.setattr(registry, "_types", {})
    code = "from django_jobs import job\n@job\ndef send(): ...\n{}@job\ndef send(): ...\n"
    exec(code.format("\n"), {"__name__": "copied"})
    (message,) = checks.check_names(None)
    assert "copied.send (line 2) and copied.send (line 5)" in message.msg


def test_a_module_that_is_read_again_is_no_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_clashes", [])
    monkeypatch.setattr(registry, "_types", {})
    for _ in range(2):
        exec("from django_jobs import job\n@job\ndef send(): ...\n", {"__name__": "copied"})
    assert checks.check_names(None) == []


@pytest.fixture
def lite_options() -> Iterator[dict[str, Any]]:
    settings = connections["lite"].settings_dict
    before = settings["OPTIONS"]
    settings["OPTIONS"] = dict(before)
    yield settings["OPTIONS"]
    settings["OPTIONS"] = before


@pytest.mark.parametrize("vendor", ["sqlite"], indirect=True)
def test_sqlite_without_immediate_transactions_is_a_warning_with_the_line_to_paste(
    vendor: str, lite_options: dict[str, Any]
) -> None:
    assert checks.check_database(None) == []
    del lite_options["transaction_mode"]
    (message,) = checks.check_database(None)
    assert message.id == "django_jobs.W001"
    assert 'DATABASES["lite"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE"' in str(message.hint)


@pytest.mark.parametrize("vendor", ["sqlite"], indirect=True)
def test_an_old_sqlite_is_an_error(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    assert ids(checks.check_database(None)) == ["django_jobs.E004"]


@pytest.fixture
def maria(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    engines._engine.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(type(connections["default"]), "vendor", "mysql")
        patch.setattr(type(connections["default"]), "display_name", "MariaDB")
        yield
    engines._engine.cache_clear()


@pytest.mark.django_db(databases="__all__")  # Django 6.1 asks all of them unasked
@pytest.mark.parametrize(
    "command", [["check"], ["check", "--database=default"], ["migrate"], ["runworkers"], ["jobs", "status"]]
)
def test_a_database_of_another_vendor_is_refused_by_all_commands_in_the_same_words(
    maria: None, command: list[str]
) -> None:
    # `check` has no such option: it does nothing else.
    options: dict[str, Any] = {} if command[0] == "check" else {"skip_checks": False}
    with pytest.raises(CommandError, match="'default' is MariaDB, which django_jobs cannot keep") as caught:
        call_command(*command, **options)
    assert "django_jobs.E003" in str(caught.value)


@pytest.mark.django_db
def test_an_old_postgresql_is_an_error_when_the_database_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_server(None, databases=["default"]) == []
    monkeypatch.setattr(connections["default"], "get_database_version", lambda: (14, 9))
    assert checks.check_server(None, databases=["lite"]) == []
    assert ids(checks.check_server(None, databases=["default"])) == ["django_jobs.E006"]


@pytest.mark.parametrize("target", [Job, ArchivedJob])
def test_a_foreign_key_to_a_job_is_an_error(monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    with isolate_apps("tests.app"):

        class Receipt(models.Model):
            job = models.ForeignKey(target, on_delete=models.CASCADE, related_name="+")

            class Meta:
                app_label = "app"

        monkeypatch.setattr(apps, "get_models", lambda **kwargs: [Receipt])
        (message,) = checks.check_foreign_keys(None)
    assert (message.id, message.msg) == ("django_jobs.E005", "app.Receipt.job is a foreign key to a job.")


@pytest.mark.django_db(databases="__all__")
@pytest.mark.parametrize("missing", ["the schema", "the table"])
def test_a_user_who_cannot_make_partitions_is_warned_about(settings: Any, missing: str) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE ROLE mere_user")
        if missing == "the table":
            cursor.execute("GRANT CREATE ON SCHEMA public TO mere_user")
        else:
            cursor.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            cursor.execute("ALTER TABLE django_jobs_archivedjob OWNER TO mere_user")
        cursor.execute("SET LOCAL ROLE mere_user")
        assert ids(checks.check_server(None, databases=["default"])) == ["django_jobs.W002"]
        settings.DJANGO_JOBS = {"ARCHIVE_FOR": 0}
        assert checks.check_server(None, databases=["default"]) == []
        cursor.execute("RESET ROLE")
        settings.DJANGO_JOBS = {}
        assert checks.check_server(None, databases=["default"]) == []


def test_jobs_that_are_to_be_run_where_they_are_enqueued_are_warned_of_outside_of_tests(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = {"IMMEDIATE": True}
    assert "django_jobs.W004" not in ids(run_checks(tags=["django_jobs"]))
    monkeypatch.delattr(_TestState, "saved_data")
    assert "django_jobs.W004" in ids(run_checks(tags=["django_jobs"]))
    settings.DJANGO_JOBS = {}
    assert checks.check_immediate(None) == []


def test_every_check_is_documented() -> None:
    package = Path(checks.__file__).parent
    source = "".join(path.read_text() for path in [package / "tasks_backend.py", *package.rglob("checks.py")])
    assert set(re.findall(r"django_jobs\.[EW]\d{3}", source)) == set(
        re.findall(r"django_jobs\.[EW]\d{3}", DOCS.read_text())
    )
