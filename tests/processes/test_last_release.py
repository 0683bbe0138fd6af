"""During the deploy of an upgrade the workers of the last release run on the tables of this one; `.ci/run` says where it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_jobs import registry
from django_jobs.engines import engine
from django_jobs.models import ArchivedJob, Job
from tests.archive.common import ended
from tests.harness import Tree, wait_for
from tests.processes.common import with_processes

RELEASE = os.environ.get("LAST_RELEASE", "")
pytestmark = [
    *with_processes,
    pytest.mark.skipif(not RELEASE, reason="LAST_RELEASE names no directory with the package of the last release"),
]
# A project of that time. It has what is public since the first release, and nothing of the tests, which have moved on.
SITE = """
import json, os

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["django_jobs", "shop_of_then"]
DATABASES = json.loads(os.environ["DJANGO_JOBS_TEST_DATABASES"])
DJANGO_JOBS = json.loads(os.environ["DJANGO_JOBS_TEST_SETTINGS"])
"""
JOBS = """
import django_jobs
from django_jobs import Backoff, Context, job, once, schedule

@job
def where(number: int) -> str:
    return django_jobs.__file__

@job(backoff=Backoff(base=0.05, factor=1, cap=0.05), takes_context=True)
def fail_at_first(context: Context) -> int:
    if context.attempt == 1:
        raise OSError("at first")
    return context.attempt

@job(atomic=True)
def go_on(number: int) -> None:
    with once(f"go on {number}"):
        where.using(idempotency_key=f"after:{number}").enqueue(number)

@schedule(every=1)
@job
def often() -> None: ...
"""


class TreeOfThen(Tree):
    """Starts commands of the last release, with the project of that time."""

    def command(self, *arguments: str) -> Sequence[str]:
        # -P: without the directory that it starts in, which has the package as well
        return [sys.executable, "-P", "-m", "django", *arguments]

    def environment(self, settings: dict[str, Any]) -> dict[str, str]:
        path = os.pathsep.join([RELEASE, str(self.directory)])
        return super().environment(settings) | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "site_of_then"}


@pytest.fixture
def then(tree: Tree, tmp_path: Path) -> Iterator[TreeOfThen]:
    (tmp_path / "shop_of_then").mkdir()
    for name, text in {"site_of_then": SITE, "shop_of_then/__init__": "", "shop_of_then/jobs": JOBS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = TreeOfThen(tree.alias, tmp_path)
    yield found
    found.end_all()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the jobs of that project as the new code has them."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    module = ModuleType("shop_of_then.jobs")
    exec(JOBS, module.__dict__)
    return module


def test_workers_of_the_last_release_run_on_these_tables(then: TreeOfThen, jobs: Any) -> None:
    old = ended(engine(then.alias), "done", days=2)
    waiting = [
        jobs.where.enqueue(1),
        jobs.where.using(idempotency_key="key", delay=0.1).enqueue(2),
        jobs.fail_at_first.enqueue(),
        jobs.go_on.enqueue(3),
    ]
    many = jobs.where.enqueue_many(jobs.where.call(number) for number in range(3))
    workers = then.start()
    for job in [*waiting, *Job.objects.using(then.alias).filter(pk__in=many)]:
        then.wait_for_status(job, "done")
    assert str(waiting[0].result).startswith(RELEASE)
    wait_for(lambda: then.count(idempotency_key="after:3", status="done"), what="what it enqueued")
    wait_for(lambda: then.count(type=jobs.often.name, status="done"), what="the job of a slot")
    wait_for(lambda: ArchivedJob.objects.using(then.alias).filter(pk=old.pk).exists(), what="retention")
    assert then.run("jobs", "status").returncode == 0
    assert workers.stop() == 0, workers.log
    assert "Traceback" not in workers.log
    assert old.refresh().requeue().status == "ready"
