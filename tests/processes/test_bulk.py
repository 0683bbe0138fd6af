"""Acts upon many jobs while what carries them out is killed, stopped, or loses its database: none comes to a job twice."""

from __future__ import annotations

import os
import signal

from django.db import connections

from django_jobs import bulk
from django_jobs.models import BulkAct, Job
from example_project import postgres
from tests.bulk import assert_each_once, begin, fill
from tests.harness import Tree, wait_for
from tests.processes.common import ends, on_postgresql, state, with_processes
from tests.processes.outages import LEASE as OUTAGE_LEASE
from tests.processes.outages import down
from tests.threads import Session

pytestmark = with_processes
# The jobs themselves are in a queue that nobody serves.
SERVED = ("--queues", "default", "--threads", "1")


def read(act: BulkAct) -> BulkAct:
    act.refresh_from_db()
    return act


def wait_until_done(act: BulkAct, timeout: float = 60.0) -> None:
    wait_for(lambda: read(act).state == "done", timeout, f"the act is done, it is {act.state} after {act.done}")


def sessions(alias: str, condition: str) -> set[int]:
    """Return the sessions of the server for which a condition holds."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT pid FROM pg_stat_activity WHERE {condition}")
        return {pid for (pid,) in cursor.fetchall()}


@on_postgresql
def test_what_a_step_did_when_its_process_was_killed_in_the_midst_of_it_was_not_done(
    tree: Tree, other: Session
) -> None:
    fill(tree.alias, 2000)
    jobs = Job.objects.using(tree.alias)
    # These are acted upon one by one, since each takes back its key.
    first, second = jobs.order_by("pk").values_list("pk", flat=True)[:2]
    for job_id in (first, second):
        jobs.filter(pk=job_id).update(meta={"key": f"key {job_id}"})
    act = begin()
    other.begin()
    other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", second)
    workers = tree.start(*SERVED)
    (pid,) = workers.wait_until_ready()
    waits = "wait_event_type = 'Lock' AND query LIKE '%django_jobs_job%'"
    (waiting,) = wait_for(lambda: sessions(tree.alias, waits), what="a step has come to the second job")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: waiting not in sessions(tree.alias, "true"), what="its session is gone")
    assert jobs.filter(queue="unserved", status="ready").count() == 0
    assert read(act).after == act.start
    other.commit()
    wait_until_done(act)
    assert (act.done, act.refused) == (2000, 0)
    assert_each_once(tree.alias, 2000)
    assert workers.stop() == 0


def test_killed_between_its_steps_it_goes_on_behind_them(tree: Tree) -> None:
    fill(tree.alias, 30_000)
    act = begin()
    workers = tree.start(*SERVED)
    (pid,) = workers.wait_until_ready()
    wait_for(lambda: 0 < read(act).done < 30_000, what="it has begun")
    os.kill(pid, signal.SIGKILL)
    wait_until_done(act)
    assert (act.done, act.refused) == (30_000, 0)
    assert_each_once(tree.alias, 30_000)
    job = Job.objects.using(tree.alias).get(pk=act.job_id)
    assert "died" in [cause for _run, cause in ends(job)]
    assert workers.stop() == 0


def test_a_stop_ends_it_behind_its_step_uncharged_and_the_next_worker_goes_on(tree: Tree) -> None:
    fill(tree.alias, 30_000)
    act = begin()
    workers = tree.start(*SERVED)
    wait_for(lambda: 0 < read(act).done < 30_000, what="it has begun")
    assert workers.stop(timeout=6.0) == 0
    job = Job.objects.using(tree.alias).get(pk=act.job_id)
    assert read(act).state == "running"
    assert state(job)[:3] == ("ready", 0, 0)
    again = tree.start(*SERVED)
    wait_until_done(act)
    assert_each_once(tree.alias, 30_000)
    assert again.stop() == 0


def test_cancelled_while_it_runs_it_ends_at_once_and_resumed_it_does_the_rest(tree: Tree) -> None:
    fill(tree.alias, 30_000)
    act = begin()
    workers = tree.start(*SERVED)
    wait_for(lambda: 0 < read(act).done < 30_000, what="it has begun")
    bulk.cancel(act.pk)
    job = Job.objects.using(tree.alias).get(pk=act.job_id)
    tree.wait_for_status(job, "cancelled", timeout=5.0)
    done = read(act).done
    assert done < 30_000
    assert Job.objects.using(tree.alias).filter(queue="unserved", status="ready").count() == done
    bulk.resume(act.pk)
    wait_until_done(act)
    assert_each_once(tree.alias, 30_000)
    assert workers.stop() == 0


def test_a_database_that_goes_away_in_the_midst_of_it_costs_no_attempt(server: postgres.Server, trees: Tree) -> None:
    fill(trees.alias, 30_000)
    act = begin()
    workers = trees.start(*SERVED, settings=OUTAGE_LEASE)
    wait_for(lambda: 0 < read(act).done < 30_000, what="it has begun")
    with down(server, (workers, "supervisor"), (workers, "worker")):
        pass
    wait_until_done(act)
    assert (act.done, act.refused) == (30_000, 0)
    assert_each_once(trees.alias, 30_000)
    job = Job.objects.using(trees.alias).get(pk=act.job_id)
    trees.wait_for_status(job, "done")
    assert job.attempts == 0
    assert workers.stop() == 0
