"""The thread that takes away what is old: it gets its work done, and is in nobody's way."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.engines import engine as engine_of
from django_jobs.models import ArchivedJob, Job, Stat, Worker
from django_jobs.models.clock import Clock, database_now, for_row
from example_project import postgres
from tests.app.jobs import nothing
from tests.archive.common import DAY, partitions
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import lines, on_postgresql, with_processes
from tests.processes.outages import down
from tests.threads import session

pytestmark = with_processes
OLD = "gone.long.ago"


# As many more rows as are asked for, each like the one that is there.
MANY = """
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < %s)
INSERT INTO django_jobs_job (type, payload, status, token, finished_at, created_at)
SELECT type, payload, status, token, finished_at, created_at FROM django_jobs_job, number WHERE type = %s
"""


def old_jobs(tree: Tree, count: int) -> None:
    ended = Clock() - 2 * DAY
    values = {
        "payload": {"args": [], "kwargs": {}},
        "status": "done",
        "token": 1,
        "finished_at": ended,
        "created_at": ended,
    }
    with transaction.atomic(tree.alias), connections[tree.alias].cursor() as cursor:
        Job.objects.using(tree.alias).create(type=OLD, **values)
        cursor.execute(MANY, [count - 1, OLD])


def left(tree: Tree) -> int:
    return tree.count(type=OLD)


def kept(tree: Tree) -> int:
    return int(ArchivedJob.objects.using(tree.alias).count())


def said(workers: RunWorkers) -> int:
    numbers = [
        re.search(r"(\d+) jobs that ended long ago were archived, 0 deleted", line)
        for line in lines(workers, "archived")
    ]
    return sum(int(found[1]) for found in numbers if found)


def assert_none_lost(tree: Tree, count: int) -> None:
    ids = list(Job.objects.using(tree.alias).filter(type=OLD).values_list("pk", flat=True))
    ids += ArchivedJob.objects.using(tree.alias).values_list("pk", flat=True)
    assert len(ids) == len(set(ids)) == count


def test_whoever_runs_workers_archives_what_is_old_and_says_so_once_for_a_round(tree: Tree) -> None:
    old_jobs(tree, 1200)
    job = nothing.enqueue(1)
    workers = tree.start()
    wait_for(lambda: left(tree) == 0, what="all old jobs are archived")
    tree.wait_for_status(job, "done")
    wait_for(lambda: said(workers) == 1200, what="they are told of")
    assert workers.stop() == 0
    # A round that the fork of the template fell into says what it had done, and another one goes on.
    assert len(lines(workers, "were archived")) <= 2
    assert_none_lost(tree, 1200)


def test_whoever_runs_workers_folds_old_statistics_and_forgets_the_oldest(tree: Tree) -> None:
    stats = Stat.objects.using(tree.alias)
    now = database_now(tree.alias).replace(second=0, microsecond=0)
    for days in (2, 40):
        moment = for_row(now - days * DAY, tree.alias)
        stats.create(minute=moment, queue="default", type="t", incarnation="a1", done=days, runs=[], waits=[])
    workers = tree.start()
    wait_for(lambda: list(stats.values_list("seconds", "done")) == [(3600, 2)], what="one is an hour, one is gone")
    assert workers.stop() == 0


def test_a_stop_does_not_wait_for_the_end_of_a_round(tree: Tree) -> None:
    old_jobs(tree, 8000)
    workers = tree.start()
    workers.wait_until_ready()
    wait_for(lambda: kept(tree) > 0)
    began = time.monotonic()
    assert workers.stop() == 0
    assert time.monotonic() - began < 5.0
    assert left(tree) > 0
    assert_none_lost(tree, 8000)


def test_a_kill_in_the_middle_of_a_round_loses_and_doubles_nothing(tree: Tree) -> None:
    old_jobs(tree, 6000)
    for target in (500, 1500, 2500):
        workers = tree.start()
        wait_for(lambda: kept(tree) >= target)  # noqa: B023
        workers.signal_tree(signal.SIGKILL)
        workers.wait()
        assert_none_lost(tree, 6000)
    tree.start()
    wait_for(lambda: left(tree) == 0, what="what the killed ones left is archived")
    assert_none_lost(tree, 6000)


@on_postgresql
def test_several_supervisors_take_turns_and_lose_nothing(tree: Tree) -> None:
    before = set(partitions(engine_of(tree.alias)))  # by another test, and of yesterday if it was before midnight
    old_jobs(tree, 4000)
    workers = [tree.start() for _ in range(3)]
    wait_for(lambda: left(tree) == 0, what="all old jobs are archived")
    assert [found.stop() for found in workers] == [0, 0, 0]
    assert_none_lost(tree, 4000)
    assert len(set(partitions(engine_of(tree.alias))) - before) <= 1


@pytest.mark.postgresql
def test_after_an_outage_in_the_middle_of_a_round_it_goes_on(server: postgres.Server, trees: Tree) -> None:
    old_jobs(trees, 40_000)
    workers = trees.start()
    workers.wait_until_ready()
    wait_for(lambda: kept(trees) > 0)
    assert left(trees) > 0
    with down(server, (workers, "supervisor")):
        pass
    wait_for(lambda: left(trees) == 0, 60.0, "what is left is archived")
    assert not lines(workers, "Maintenance failed")
    assert workers.stop() == 0
    assert_none_lost(trees, 40_000)


@on_postgresql
def test_it_has_a_session_of_its_own_with_its_name_and_gives_it_back(tree: Tree) -> None:
    def sessions() -> int:
        with connections[tree.alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'django_jobs:maintenance'")
            return int(cursor.fetchone()[0])

    old_jobs(tree, 3000)
    workers = tree.start()
    assert wait_for(sessions) == 1
    wait_for(lambda: left(tree) == 0)
    wait_for(lambda: sessions() == 0, what="the session is given back after the round")
    workers.assert_runs()


@on_postgresql
def test_while_the_archive_is_locked_jobs_run_leases_are_extended_and_a_stop_is_quick(tree: Tree) -> None:
    old_jobs(tree, 600)
    with session(tree.alias) as other:
        other.begin()
        other.sql("LOCK TABLE django_jobs_archivedjob IN ACCESS EXCLUSIVE MODE")
        workers = tree.start(settings={"LEASE": 3, "HEARTBEAT": 0.5})
        (pid,) = workers.wait_until_ready()
        wait_for(lambda: _waits(tree, "maintenance"), what="the archive is waited for")
        assert tree.wait_for_status(nothing.enqueue(1), "done", timeout=5)
        began = _heartbeat(tree, pid)
        wait_for(lambda: _heartbeat(tree, pid) > began, 3.0, "heartbeats go on")
        started = time.monotonic()
        assert workers.stop() == 0
        assert time.monotonic() - started < 6.0
    assert left(tree) == 600


def _waits(tree: Tree, role: str) -> bool:
    with connections[tree.alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'",
            [f"django_jobs:{role}"],
        )
        return bool(cursor.fetchone()[0])


def _heartbeat(tree: Tree, pid: int) -> Any:
    return Worker.objects.using(tree.alias).get(pid=pid).heartbeat_at
