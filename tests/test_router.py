"""Jobs on a database of their own, by the router that is shipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from django_jobs import checks
from django_jobs.models import Job
from django_jobs.router import JobsRouter

# A project with two databases: what it prints is what the tests look at.
PROJECT = """
import sys
import django
from django.conf import settings
from django.core.management import call_command

def database(name):
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{sys.argv[1]}/{name}",
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20}}

settings.configure(
    SECRET_KEY="x", USE_TZ=True, DATABASES={"default": database("site"), "jobs": database("jobs")},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_jobs"],
    DATABASE_ROUTERS=["django_jobs.router.JobsRouter"], DJANGO_JOBS={"DATABASE": "jobs"},
)
django.setup()
from django.contrib.auth.models import Group
from django.db import connections, transaction
from django_jobs import InvalidJob, job
from django_jobs.models import Job

@job
def greet(name):
    return f"hello {name}"

call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
call_command("migrate", database="jobs", verbosity=0)
for alias in ("default", "jobs"):
    tables = connections[alias].introspection.table_names()
    print(alias, sum(name.startswith("django_jobs_") for name in tables) > 5, "auth_group" in tables)
try:
    with transaction.atomic():
        Group.objects.create(name="gone")
        try:
            greet.enqueue("refused")
        except InvalidJob as error:
            print("refused", "detached" in str(error))
        greet.using(detached=True).enqueue("Ada")
        raise RuntimeError
except RuntimeError:
    print("rolled back", Group.objects.count(), Job.objects.count())
for name in ("Grace", None):  # twice in one process: the file is free again
    call_command("runworkers", burst=True, processes=1, no_scheduler=True, verbosity=0)
    if name:
        greet.enqueue(name)
print(*Job.objects.order_by("id").values_list("result", flat=True))
"""


@pytest.mark.process
def test_a_project_keeps_its_jobs_on_a_database_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "project.py"
    path.write_text(PROJECT)
    ran = subprocess.run([sys.executable, path, tmp_path], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    said = [line for line in ran.stdout.splitlines() if "System check" not in line]
    assert said == [
        "default False True",
        "jobs True False",
        "refused True",
        "rolled back 0 1",
        "hello Ada hello Grace",
    ]


@pytest.mark.fast
def test_without_the_setting_the_router_says_nothing(settings: Any) -> None:
    settings.DJANGO_JOBS = {}
    router = JobsRouter()
    assert router.db_for_read(Job) is router.db_for_write(Job) is None
    assert router.allow_migrate("default", "django_jobs") is router.allow_migrate("lite", "auth") is None


@pytest.mark.fast
@pytest.mark.django_db(databases="__all__")  # Django 6.1 asks all of them unasked
@pytest.mark.parametrize("given", [{"DATABASE": "nope"}, {"DATABASE": 5}, {"DATABASE": []}, {"LEESE": 3}, "text", None])
def test_settings_that_cannot_be_used_are_left_to_their_check(settings: Any, given: object) -> None:
    settings.DJANGO_JOBS = given
    settings.DATABASE_ROUTERS = ["django_jobs.router.JobsRouter"]
    assert (JobsRouter().db_for_read(Job), JobsRouter().allow_migrate("default", "django_jobs")) == (None, None)
    assert [message.id for message in run_checks() if str(message.id).startswith("django_jobs.E")] == [
        "django_jobs.E001"
    ]


@pytest.mark.fast
def test_a_setting_that_no_router_follows_is_an_error(settings: Any) -> None:
    settings.DJANGO_JOBS = {"DATABASE": "lite"}
    (message,) = checks.check_router(None)
    assert (message.id, message.msg) == (
        "django_jobs.E009",
        "DJANGO_JOBS['DATABASE'] is 'lite', but the jobs are on 'default'.",
    )
    settings.DATABASE_ROUTERS = ["django_jobs.router.JobsRouter"]
    assert checks.check_router(None) == []
