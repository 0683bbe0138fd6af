"""What docs/quickstart.md says to do, done from its text, after `pip install`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
SQLITE, JOBS, POSTGRESQL = (
    "\n".join(line.removeprefix(indent) for line in block.splitlines()) + "\n"
    for indent, block in re.findall(r"^( *)```python\n(.*?)^ *```", PAGE, re.S | re.M)
)
# In one process, since a project takes longest to start; then seen in the admin, by somebody who has logged in.
RUN = """
import json, os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
for command in json.loads(sys.argv[1]):
    execute_from_command_line(command)
from django.contrib.auth import get_user_model
from django.test import Client
from django_jobs.models import Job
client = Client(headers={"host": "localhost"})
client.force_login(get_user_model().objects.get())
page = client.get("/admin/django_jobs/job/").content.decode()
print(page.count("mysite.jobs.greet") >= 2, [(job.status, job.result) for job in Job.objects.order_by("id")])
"""
# What is not asked, or does not wait to be stopped, when a test does it.
ENDS = {
    "createsuperuser": ["--noinput", "--username", "ada", "--email", "ada@example.com"],
    "runworkers": ["--burst"],
    "shell": ["-v", "0"],
}


@pytest.fixture
def settings_of(vendor: str, transactional_db: None) -> Iterator[str]:
    """Return what the page has a project on this database append to its settings."""
    if vendor == "sqlite":
        yield SQLITE
        return
    given = connections["default"].settings_dict
    server = {name: given[name] for name in ("USER", "PASSWORD", "HOST", "PORT")}
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE DATABASE quickstart")
        try:
            said = POSTGRESQL.replace('"NAME": "mysite"', '"NAME": "quickstart"')
            assert said != POSTGRESQL
            yield f'{SQLITE.splitlines()[0]}\n{said}DATABASES["default"] |= {server!r}\n'
        finally:
            cursor.execute("DROP DATABASE quickstart WITH (FORCE)")


@pytest.mark.process
def test_the_quickstart_leads_to_a_job_done_in_the_admin(settings_of: str, tmp_path: Path) -> None:
    call_command("startproject", "mysite", tmp_path)
    with (tmp_path / "mysite" / "settings.py").open("a") as file:
        file.write(settings_of + "PASSWORD_HASHERS = ['django.contrib.auth.hashers.MD5PasswordHasher']\n")
    (tmp_path / "mysite" / "jobs.py").write_text(JOBS)
    commands = [
        shlex.split(command)[1:] for command in COMMANDS if "manage.py" in command and "runserver" not in command
    ]
    commands = [command + ENDS.get(command[1], []) for command in commands]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([*commands, ["manage.py", "check", "--fail-level", "WARNING"]])],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "DJANGO_SUPERUSER_PASSWORD": "only for tests"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(commands) == 4
    assert done.stdout.strip().endswith("True [('done', 'Hello, Ada!'), ('ready', None)]")


def test_the_quickstart_takes_less_than_ten_commands() -> None:
    assert 5 < len(COMMANDS) < 10
