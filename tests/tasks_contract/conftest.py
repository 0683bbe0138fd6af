from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils.module_loading import import_string

from tests import router
from tests.harness import Tree

# Django before 6.0, without the package django-tasks.
collect_ignore_glob = [] if settings.TASKS else ["test_*.py"]

IS_OURS = "TASKS_CONTRACT_TASKS" not in os.environ
WORKERS = os.environ.get("TASKS_CONTRACT_WORKER", "runworkers --threads 1").split(";")
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
    directory = tmp_path_factory.mktemp("worker")
    log = directory / "worker.log"
    with log.open("wb") as file, ExitStack() as stack:
        stack.callback(_delete_all, database, django_db_blocker)
        for command in WORKERS:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", *shlex.split(command)],
                env=Tree(database, directory).environment({"POLL_INTERVAL": 0.05}),
                cwd=Path(__file__).parent.parent.parent,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            stack.callback(_stop, process)
        yield log


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    finally:
        process.kill()


def _delete_all(database: str, blocker: Any) -> None:
    with blocker.unblock():
        call_command("flush", database=database, interactive=False, verbosity=0)


@pytest.fixture
def backend_class() -> str:
    """Return where the class of the default backend stands."""
    found = import_string(settings.TASKS["default"]["BACKEND"])
    return f"{found.__module__}.{found.__qualname__}"
