"""Which tasks a process knows, and what is said of a setting that cannot be right."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobs import registry
from django_jobs.tasks import checks, discovery
from django_jobs.tasks.values import META
from django_jobs.tasks_backend import JobsBackend
from tests.tasks.common import OURS
from tests.tasks_contract.framework import NAME, default_task_backend, task

pytestmark = pytest.mark.fast
DUMMY = f"{NAME}.backends.dummy.DummyBackend"


def ids() -> list[str | None]:
    return [message.id for message in checks.check_tasks(None)]


@pytest.mark.parametrize(
    "path", ["django_jobs.tasks_backend.JobBackend", "django_jobs.no_such.Backend", "no.such.Backend"]
)
def test_a_backend_that_cannot_be_imported_is_found_by_the_check(path: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": path}}):
        (found,) = checks.check_tasks(None)
    assert (found.id, found.hint) == ("django_jobs.E010", f"The backend of django_jobs is {OURS!r}.")
    assert repr(path) in found.msg


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        # A module that was imported is found as the attribute of its package.
        ("django_jobs.tasks_backend", "names the backend 'django_jobs.tasks_backend', which is no class of a backend."),
        ("django_jobs.tasks_backend.JobsTask", "which is no class of a backend."),
        ("django_jobs.tasks_backend.plain", "which is no class of a backend."),
        (f"{NAME}.backends.base.BaseTaskBackend", "which is only what backends are made from."),
        ("tests.tasks.unusable.Backend", "which cannot be imported: settings are missing"),
        (JobsBackend, "has <class 'django_jobs.tasks_backend.JobsBackend'> as BACKEND; give the path"),
        (None, "has None as BACKEND; give the path of a backend."),
    ],
)
def test_what_is_no_backend_is_found_by_the_check(backend: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "TASKS", {"default": {"BACKEND": backend}})
    assert discovery.ours() == []
    (found,) = checks.check_tasks(None)
    assert (found.id, found.hint) == ("django_jobs.E010", f"The backend of django_jobs is {OURS!r}.")
    assert found.msg.startswith("TASKS['default'] ")
    assert said in found.msg


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "TASKS is 'text'; give a dict of backends by their aliases."),
        (None, "TASKS is None; give a dict"),
        ({"default": "text"}, "TASKS['default'] is 'text'; give a dict with the path of a backend as BACKEND."),
        ({"default": {}}, "TASKS['default'] has None as BACKEND"),
    ],
)
def test_a_setting_of_another_form_is_found_by_the_check(
    given: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TASKS", given)
    (found,) = checks.check_tasks(None)
    assert (found.id, found.msg.startswith(said)) == ("django_jobs.E010", True)


@pytest.mark.skipif(NAME == "django_tasks", reason="before Django 6.0 there is one framework")
def test_a_backend_of_the_other_framework_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    base = type("BaseTaskBackend", (), {"__module__": "django_tasks.backends.base", **dict.fromkeys(
        ("enqueue", "validate_task", "task_class"))})  # fmt: skip
    monkeypatch.setattr(checks, "import_string", lambda path: type("Immediate", (base,), {}))
    monkeypatch.setattr(settings, "TASKS", {"default": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend"}})
    (found,) = checks.check_tasks(None)
    assert (found.id, "django.tasks.backends" in str(found.hint)) == ("django_jobs.W006", True)


def test_a_setting_that_is_right_has_no_fault() -> None:
    assert ids() == []
    assert run_checks(tags=["django_jobs"]) == []


@pytest.mark.parametrize("given", [{}, None, "text", {"default": "text"}, {"default": {}}])
def test_what_is_no_backend_of_ours_is_left_to_the_framework(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.conf.settings.TASKS", given)
    assert list(discovery.configured()) == []
    assert discovery.ours() == []


def test_a_project_without_the_app_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "django_jobs")
    assert [message.id for message in default_task_backend.check()] == ["django_jobs.E012"]


def test_modules_named_tasks_are_imported_at_the_start() -> None:
    assert "tests.tasks_contract.tasks.email_users" in registry.names()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module of a project, in which is a task."""
    (tmp_path / "elsewhere_of_shop.py").write_text(f"from {NAME} import task\n\n\n@task\ndef remind() -> None: ...\n")
    (tmp_path / "urls_of_shop.py").write_text("import elsewhere_of_shop\n\nurlpatterns = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("elsewhere_of_shop", "urls_of_shop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "elsewhere_of_shop"


def test_other_modules_are_named_in_the_options(module: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "OPTIONS": {"modules": [module]}}}):
        discovery.discover()
    assert f"{module}.remind" in registry.names()
    missing = {"BACKEND": OURS, "OPTIONS": {"modules": ["no_such_module"]}}
    said = r"OPTIONS'\]\['modules'\] names 'no_such_module', which cannot be"
    with override_settings(TASKS={"default": missing}), pytest.raises(ImproperlyConfigured, match=said):
        discovery.discover()


def test_what_only_views_import_is_found_for_a_result(module: str) -> None:
    with override_settings(ROOT_URLCONF="urls_of_shop"):
        found = discovery.find(f"{module}.remind")
        assert found is sys.modules[module].remind
        assert discovery.find(f"{module}.nobody") is None


@pytest.mark.parametrize("backend", [OURS, "django_jobs.tasks_backend.JobBackend", f"{__name__}.NoBackend"])
def test_the_framework_is_asked_only_where_our_backend_is_used(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(discovery, "import_module", imported.append)
    with override_settings(TASKS={"default": {"BACKEND": backend}}):
        discovery.discover()
    assert imported == ([OURS.rpartition(".")[0]] if backend == OURS else [])


def test_a_framework_that_is_missing_is_found_by_the_check_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError("install django_jobs with the extra `tasks`")

    for place in (discovery, checks):
        monkeypatch.setattr(place, "import_string", missing)
    monkeypatch.setattr(discovery, "import_module", missing)
    discovery.discover()
    discovery.know_loaded()
    assert ids() == ["django_jobs.E010"] * 2


def test_a_task_that_was_defined_for_another_backend_is_known_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def remind() -> None: ...

    remind.__module__, remind.__qualname__ = "pasted_tasks", "remind"
    module: Any = ModuleType("pasted_tasks")
    monkeypatch.setitem(sys.modules, "pasted_tasks", module)
    with override_settings(TASKS={"default": {"BACKEND": DUMMY}, "jobs": {"BACKEND": OURS}}):
        module.remind = task(remind)
        assert "pasted_tasks.remind" not in registry.names()
        discovery.know_loaded()
    found = registry.find("pasted_tasks.remind")
    assert found is not None
    assert found.meta == {META: {"backend": "jobs"}}


def test_a_task_and_a_job_of_one_name_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_clashes", [])

    def again() -> None: ...

    again.__module__, again.__qualname__ = "tests.app.jobs", "nothing"
    task(again)
    assert [first.name for first, _ in registry.clashes()] == ["tests.app.jobs.nothing"]
