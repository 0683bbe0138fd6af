"""The pages beside django-unfold, which brings templates of its own for all that Django's admin has."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THERE = importlib.util.find_spec("unfold") is not None

pytestmark = pytest.mark.skipif(
    not THERE and not os.environ.get("REQUIRE_UNFOLD"),
    reason="django-unfold is not installed; REQUIRE_UNFOLD=1 makes this a failure",
)


def test_the_pages_are_there_beside_django_unfold(tmp_path: Path) -> None:
    assert THERE, "REQUIRE_UNFOLD is set, and django-unfold is not installed"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.unfold_settings",
        "DJANGO_JOBS_TEST_DATABASES": json.dumps({"default": database}),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.admin.unfolded"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    statuses = found.pop("statuses")
    never = {name for name, status in statuses.items() if status == 403}
    # It is asked for on the list of jobs, to which everybody is led who asks for nothing.
    assert statuses.pop("bulkact_add") == 302
    assert statuses.pop("overview_changelist") == 302
    assert {name: status for name, status in statuses.items() if status not in (200, 403, 405)} == {}
    assert {name for name in never if not re.search("_(add|delete)( |$)|^archivedjob_run", name)} == set()
    assert found == {"unfold": [True] * 3, "overview": True, "list": [True] * 3, "job": [True] * 4}
