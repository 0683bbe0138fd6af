from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from tests import router
from tests.harness import Tree

IS_OURS = "TASKS_CONTRACT_TASKS" not in os.environ
WORKER = shlex.split(os.environ.get("TASKS_CONTRACT_WORKER", "runworkers --threads 2"))
DATABASES = {"postgresql": "default", "sqlite": "lite"} if IS_OURS else {"postgresql": "default"}


@pytest.fixture(scope="module", params=sorted(DATABASES))
def database(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[str]:
    """Return the alias of the database on which tasks are kept."""
    router.jobs_alias = DATABASES[request.param]
    yield router.jobs_alias
    router.jobs_alias = "default"


@pytest.fixture(scope="module")
def worker(database: str, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Path]:
    """Have a worker run what is enqueued; return its log. What the tests left is deleted at the end."""
    found = tmp_path_factory.mktemp("worker")
    log = found / "worker.log"
    environment = Tree(database, found).environment({"POLL_INTERVAL": 0.05})
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", *WORKER],
            env=environment,
            cwd=Path(__file__).parent.parent.parent,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            with django_db_blocker.unblock():
                call_command("flush", database=database, interactive=False, verbosity=0)


@pytest.fixture
def backend_class() -> str:
    return str(settings.TASKS["default"]["BACKEND"])
