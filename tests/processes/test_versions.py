"""Old and new code side by side: a type that only the new code knows."""

from __future__ import annotations

import json
import os

from django.db.models import Max

from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.app.process_jobs import newer
from tests.harness import Tree, wait_for
from tests.processes.common import on_postgresql, on_sqlite, state, wait_seconds, with_processes

pytestmark = with_processes
OLD_CODE = {"DJANGO_JOBS_TEST_WITHOUT_NEWER": "1"}
SIDE_BY_SIDE_SECONDS = float(os.environ.get("DJANGO_JOBS_TEST_SIDE_BY_SIDE", "4"))
UNKNOWN = f"no live worker that serves the queue 'default' knows the type '{newer.name}'"


def status(tree: Tree) -> tuple[list[str], str]:
    """Return the unknown types as `jobs status` names them, and its text."""
    found = json.loads(tree.run("jobs", "status", "--json").stdout)
    return [row["type"] for row in found["unknown_types"]], tree.run("jobs", "status").stdout


def assert_each_ran_once(tree: Tree, jobs: list[Job], runs: int = 1) -> None:
    for job in jobs:
        tree.wait_for_status(job, "done")
        assert (state(job), job.result, job.history) == (("done", 0, 0, runs), job.args[0], [])


@on_postgresql
def test_while_old_and_new_code_run_side_by_side_each_job_runs_once_and_none_fails_for_being_unknown(
    tree: Tree,
) -> None:
    old = tree.start(env=OLD_CODE)
    old.wait_until_ready()
    waiting = newer.enqueue(-1)
    wait_for(lambda: waiting.refresh().parked == "type")
    assert waiting.explain().startswith("Due for ")
    assert UNKNOWN in waiting.explain()
    names, text = status(tree)
    assert names == [newer.name]
    assert f"No live worker knows '{newer.name}': 1 jobs parked in the queue 'default', the oldest due for" in text
    new = tree.start()
    assert_each_ran_once(tree, [waiting])
    jobs = []
    for number in range(int(SIDE_BY_SIDE_SECONDS / 0.02)):
        jobs += [job_type.enqueue(number) for job_type in (newer, nothing)]
        wait_seconds(0.02)
    assert_each_ran_once(tree, jobs)
    assert status(tree)[0] == []
    # The order of the old worker's ignorance is kept: nothing waited behind it.
    assert Job.objects.using(tree.alias).aggregate(most=Max("token"))["most"] == 1
    assert [new.stop(), old.stop()] == [0, 0]


@on_sqlite
def test_a_type_that_the_old_code_did_not_know_runs_once_when_the_new_code_comes(tree: Tree) -> None:
    old = tree.start(env=OLD_CODE)
    old.wait_until_ready()
    jobs = [job_type.enqueue(number) for number in range(20) for job_type in (newer, nothing)]
    assert_each_ran_once(tree, jobs[1::2])
    wait_for(lambda: tree.count(parked="type") == 20)
    assert UNKNOWN in jobs[0].explain()
    assert status(tree)[0] == [newer.name]
    assert old.stop() == 0
    new = tree.start()
    assert_each_ran_once(tree, jobs)
    assert new.stop() == 0
