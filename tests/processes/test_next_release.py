"""The next release may add columns that may be null: during its deploy the workers of this one run on its schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.db import connections

from django_jobs.engines import engine
from django_jobs.models import ArchivedJob, Job, Schedule
from tests.app.jobs import fail_until, leave_effect, nothing
from tests.archive.common import ended
from tests.harness import Tree, wait_for
from tests.processes.common import with_processes

pytestmark = with_processes
COLUMN = "of_the_next_release"
TABLES = [model._meta.db_table for model in apps.get_app_config("django_jobs").get_models()]


def alter(tree: Tree, change: str) -> None:
    with connections[tree.alias].cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {table} {change}")


@pytest.fixture
def next_schema(tree: Tree) -> Iterator[None]:
    alter(tree, f"ADD COLUMN {COLUMN} varchar(20) NULL")
    yield
    tree.end_all()
    alter(tree, f"DROP COLUMN {COLUMN}")


def test_workers_run_on_a_schema_with_one_more_column_that_may_be_null(tree: Tree, next_schema: None) -> None:
    found = engine(tree.alias)
    old, dead = ended(found, "done", days=2), ended(found, "dead", days=1)
    jobs = [
        nothing.enqueue(1),
        nothing.using(idempotency_key="key").enqueue(2),
        fail_until.enqueue(2),
        leave_effect.enqueue("a"),
        dead.requeue(),
    ]
    many = nothing.enqueue_many(nothing.call(number) for number in range(3))
    Schedule(name="each", type=nothing.name, every=1).save(using=tree.alias)
    workers = tree.start()
    wait_for(lambda: tree.count(schedule="each", status="done") >= 1)
    for job in [*jobs, *Job.objects.using(tree.alias).filter(pk__in=many)]:
        tree.wait_for_status(job, "done")
    wait_for(lambda: ArchivedJob.objects.using(tree.alias).filter(pk=old.pk).exists())
    assert workers.stop() == 0
    assert "Traceback" not in workers.log
    assert old.refresh().requeue().status == "ready"
