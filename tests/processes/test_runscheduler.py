"""`runscheduler`, and the scheduler in `runworkers`: how they start, act, survive and end."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now

from django_jobs.models import Job, Schedule, ScheduleState
from example_project import postgres
from tests.app.jobs import nothing
from tests.harness import Command, Tree, wait_for
from tests.processes.common import lines, on_postgresql, on_sqlite, wait_seconds, with_tables
from tests.processes.outages import LEASE, away, back, down
from tests.proxy import Proxy
from tests.threads import session

pytestmark = pytest.mark.process
SECOND = timedelta(seconds=1)


def make(tree: Tree, name: str = "tick", **values: Any) -> Schedule:
    given = {"type": nothing.name, "every": 1, "payload": {"args": [1], "kwargs": {}}, **values}
    found = Schedule(name=name, **given)
    found.save(using=tree.alias)
    return found


def slots(tree: Tree, name: str = "tick") -> list[datetime]:
    rows = Job.objects.using(tree.alias).filter(schedule=name, slot__isnull=False)
    return list(rows.order_by("slot").values_list("slot", flat=True))


def wait_for_more(tree: Tree, number: int = 2, name: str = "tick", timeout: float = 30.0) -> list[datetime]:
    """Return the slots when there are so many more than now."""
    wanted = len(slots(tree, name)) + number
    return wait_for(lambda: found if len(found := slots(tree, name)) >= wanted else [], timeout, f"slots of {name}")


def assert_each_second_once(found: list[datetime]) -> None:
    assert found == [found[0] + number * SECOND for number in range(len(found))]


def state(tree: Tree, name: str = "tick") -> ScheduleState:
    found: ScheduleState = ScheduleState.objects.using(tree.alias).get(schedule__name=name)
    return found


def applications(alias: str) -> list[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'django_jobs:%%' ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall()]


# Starting, acting, ending.


@with_tables
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_makes_the_job_of_each_second_and_ends_with_0_when_told_to(tree: Tree, number: int) -> None:
    make(tree)
    scheduler = tree.start_scheduler(env={"DJANGO_JOBS_TEST_STUCK_RECEIVER": "1"})
    found = wait_for_more(tree, 4)
    assert len(lines(scheduler, "hears of a slot")) == 1
    begun = time.monotonic()
    scheduler.signal(number)
    assert scheduler.wait() == 0
    assert time.monotonic() - begun < 2.5
    assert_each_second_once(found)
    assert lines(scheduler, "Scheduler started: ")
    assert scheduler.log.splitlines()[-1].endswith("Scheduler stopped (exit 0)")
    job = tree.jobs(schedule="tick")[0]
    assert (job.type, job.args, job.status, job.run_at) == (nothing.name, [1], "ready", found[0])
    assert state(tree).looked_by.endswith(f":{scheduler.pid}")


@with_tables
def test_beside_workers_that_leave_it_the_schedules_their_jobs_are_run(tree: Tree) -> None:
    workers = tree.start("--no-scheduler")
    workers.wait_until_ready()
    make(tree)
    scheduler = tree.start_scheduler()
    wait_for(lambda: tree.count(status="done", schedule="tick") >= 3, what="three are done")
    assert state(tree).looked_by.endswith(f":{scheduler.pid}")
    assert scheduler.stop() == 0
    made = len(slots(tree))
    wait_for(lambda: tree.count(status="done", schedule="tick") == made, what="all are done")
    assert workers.stop() == 0
    assert len(slots(tree)) == made
    assert_each_second_once(slots(tree))


@with_tables
def test_edits_act_within_seconds(tree: Tree) -> None:
    schedule = make(tree, every=3600)
    scheduler = tree.start_scheduler()
    wait_for(lambda: state(tree).next_run_at, what="it is planned")
    schedule.every = SECOND
    schedule.save()
    assert_each_second_once(wait_for_more(tree, 2, timeout=5.0))
    make(tree, "another")
    wait_for_more(tree, 1, "another", timeout=5.0)
    schedule.pause()
    paused = slots(tree)
    wait_for_more(tree, 3, "another")
    assert slots(tree) == paused
    schedule.resume()
    resumed = wait_for_more(tree, 2, timeout=5.0)
    # Nothing of the pause.
    assert resumed[len(paused)] - paused[-1] > 2 * SECOND
    schedule.delete()
    deleted = slots(tree)
    wait_for_more(tree, 2, "another")
    assert slots(tree) == deleted
    assert scheduler.stop() == 0


@with_tables
def test_of_several_each_slot_is_had_once_and_the_kill_of_one_leaves_no_gap(tree: Tree) -> None:
    names = [f"tick {number}" for number in range(20)]
    for name in names:
        make(tree, name)
    workers = tree.start()
    schedulers = [tree.start_scheduler() for _ in range(2)]
    for scheduler in schedulers:
        scheduler.wait_until_ready()
    wait_for_more(tree, 3, names[0])
    # A slot whose job is deleted has had its job.
    deleted = slots(tree, names[1])
    Job.objects.using(tree.alias).filter(schedule=names[1], slot__lte=deleted[-1] + SECOND / 2).delete()
    os.kill(schedulers[0].pid, signal.SIGKILL)
    schedulers[0].process.wait()
    killed = time.monotonic()
    wait_for_more(tree, 1, names[0], timeout=5.0)
    assert time.monotonic() - killed < 3.0
    wait_for_more(tree, 3, names[0])
    assert [schedulers[1].stop(), workers.stop()] == [0, 0]
    for name in names:
        found = [*(deleted if name == names[1] else []), *slots(tree, name)]
        assert_each_second_once(found)
        assert (state(tree, name).fired, state(tree, name).missed) == (len(found), 0)


@with_tables
@on_sqlite
def test_workers_wait_with_their_start_for_those_who_use_the_file(tree: Tree) -> None:
    with session(tree.alias) as other:
        connections[tree.alias].close()
        other.sql("PRAGMA journal_mode = DELETE")
        other.sql("BEGIN IMMEDIATE")
        workers = tree.start()
        name = Path(connections[tree.alias].settings_dict["NAME"])
        lock = name.with_name(f"{name.name}.runworkers")
        wait_for(lambda: lock.exists() and lock.read_text() == str(workers.pid), what="it has the file")
        wait_seconds(1.0)
        workers.assert_runs()
        other.sql("ROLLBACK")
        workers.wait_until_ready()
        other.sql("SELECT count(*) FROM django_jobs_job")  # only a read shows it to a connection that is older
        assert other.sql("PRAGMA journal_mode") == [("wal",)]
    assert workers.stop() == 0


# What it cannot start with.


@with_tables
@pytest.mark.parametrize("command", [("runscheduler", "--fast"), ("runscheduler", "now")])
def test_wrong_arguments_end_it_with_2_and_are_named(tree: Tree, command: tuple[str, str]) -> None:
    ended = tree.run(*command)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1].endswith(f"error: unrecognized arguments: {command[1]}")


@with_tables
@pytest.mark.parametrize("command", ["runscheduler", "runworkers"])
def test_settings_that_cannot_be_used_end_it_with_2(tree: Tree, command: str) -> None:
    ended = tree.run(command, settings={"MISSED_GRACE": -1})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "DJANGO_JOBS['MISSED_GRACE'] is -1" in ended.stderr


class Bare(Tree):
    """Starts commands on a database without our tables."""

    def environment(self, settings: dict[str, Any]) -> dict[str, str]:
        found = super().environment(settings)
        databases = json.loads(found["DJANGO_JOBS_TEST_DATABASES"])
        name = "postgres" if self.alias == "default" else str(self.directory / "empty.sqlite3")
        databases["default"]["NAME"] = name
        return {**found, "DJANGO_JOBS_TEST_DATABASES": json.dumps(databases)}


@pytest.mark.django_db
@pytest.mark.parametrize("command", [["runscheduler"], ["runworkers", "--no-scheduler"]])
def test_missing_tables_end_it_with_2_and_the_remedy(tmp_path: Path, vendor: str, command: list[str]) -> None:
    ended = Bare({"postgresql": "default", "sqlite": "lite"}[vendor], tmp_path).run(*command)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("CommandError: The tables of django_jobs are not as this version needs them (")
    assert line.endswith("); run `manage.py migrate`.")


# What it survives.


@with_tables
@on_postgresql
def test_workers_without_the_tables_of_schedules_say_so_once_and_run_jobs(tree: Tree) -> None:
    moved = "ALTER TABLE {} RENAME TO {}"
    names = ("django_jobs_schedulestate", "elsewhere")
    with connections[tree.alias].cursor() as cursor:
        cursor.execute(moved.format(*names))
        try:
            workers = tree.start()
            workers.wait_until_ready()
            said = "No jobs of schedules are made, workers go on: The tables of django_jobs are not as this version"
            wait_for(lambda: lines(workers, said), what="it is said")
            tree.wait_for_status(nothing.enqueue(1), "done")
            wait_seconds(1.5)  # some rounds of the supervisor
            assert workers.stop() == 0
            ended = tree.run("runworkers", "--burst")
            assert (ended.returncode, ended.stderr.count(said)) == (0, 1)
        finally:
            cursor.execute(moved.format(*reversed(names)))
    assert len(lines(workers, said)) == 1
    assert not lines(workers, "thread had ended")


@with_tables
@on_postgresql
def test_a_burst_runs_the_job_of_a_slot_that_is_due_at_its_start(tree: Tree) -> None:
    for number in range(3):
        make(tree, f"hourly {number}", every=3600)
    # As if a scheduler had seen them, and none had run since.
    ScheduleState.objects.using(tree.alias).update(changed_at=Now() - timedelta(hours=2))
    with session(tree.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_schedulestate FOR UPDATE")  # so that the workers are sooner at rest
        workers = tree.start("--burst")
        workers.wait_until_ready()
        wait_seconds(2.0)
        workers.assert_runs()
        other.rollback()
    assert workers.wait() == 0
    assert [job.status for job in tree.jobs()] == ["done"] * 3
    assert len({job.schedule for job in tree.jobs()}) == 3


@with_tables
@pytest.mark.parametrize("command", ["runscheduler", "runworkers"])
def test_its_thread_is_started_again_when_it_ends(tree: Tree, tmp_path: Path, command: str) -> None:
    make(tree)
    file = tmp_path / "end"
    env = {"DJANGO_SETTINGS_MODULE": "tests.dying", "DJANGO_JOBS_TEST_END_THREAD": str(file)}
    found: Command = tree.start_scheduler(env=env) if command == "runscheduler" else tree.start(env=env)
    wait_for_more(tree, 2)
    if command == "runworkers":  # which ends the thread itself, around the fork of its template
        wait_for(lambda: lines(found, "is ready"), what="the fork is over")
    file.touch()
    wait_for(lambda: lines(found, "The scheduler's thread had ended; it is started again"), what="it is noticed")
    wait_for_more(tree, 3)
    assert found.stop() == 0
    assert_each_second_once(slots(tree))


@with_tables
@on_postgresql
def test_the_server_shows_which_connection_is_the_schedulers(tree: Tree) -> None:
    make(tree)
    scheduler = tree.start_scheduler()
    scheduler.wait_until_ready()
    wait_for_more(tree, 1)
    assert applications(tree.alias) == ["django_jobs:scheduler"]
    assert scheduler.stop() == 0
    workers = tree.start("--threads", "1")
    workers.wait_until_ready()
    wait_for_more(tree, 2)
    roles = {f"django_jobs:{role}" for role in ("scheduler", "supervisor", "listener", "worker")}
    wait_for(lambda: set(applications(tree.alias)) == roles)
    assert applications(tree.alias).count("django_jobs:scheduler") == 1
    assert workers.stop() == 0


@pytest.mark.postgresql
def test_a_restart_of_the_database_is_waited_out_and_said_once(server: postgres.Server, trees: Tree) -> None:
    make(trees)
    scheduler, workers = trees.start_scheduler(settings=LEASE), trees.start(settings=LEASE)
    # In `runworkers` all threads of the supervisor say it together.
    both: list[tuple[Command, str]] = [(scheduler, "scheduler"), (workers, "supervisor")]
    for found, _process in both:
        wait_for(lambda: "Scheduler started" in found.log)  # noqa: B023
    wait_for_more(trees, 2)
    with down(server, *both, seconds=3.0):
        assert (back(scheduler), "supervisor" in back(workers)) == ([], False)
    wait_for_more(trees, 3, timeout=10.0)
    for found, process in both:
        wait_for(lambda: process in back(found), 10.0, "both are back")  # noqa: B023
        assert (away(found).count(process), back(found).count(process)) == (1, 1)
    assert "scheduler" not in away(workers)
    assert [scheduler.stop(), workers.stop()] == [0, 0]
    # Those of the outage were in time by the grace of a minute.
    assert_each_second_once(slots(trees))


@pytest.mark.postgresql
def test_without_a_database_it_ends_with_4_when_told_to(server: postgres.Server, network: Tree, proxy: Proxy) -> None:
    make(network)
    scheduler = network.start_scheduler(settings=LEASE)
    wait_for_more(network, 2)
    with proxy.refusal():
        wait_for(lambda: away(scheduler), what="it notices")
        late = network.start_scheduler(settings=LEASE)
        wait_for(lambda: away(late), what="one that starts notices")
        begun = time.monotonic()
        scheduler.signal(signal.SIGTERM)
        late.signal(signal.SIGTERM)
        assert [scheduler.wait(), late.wait()] == [4, 4]
        assert time.monotonic() - begun < 6.0
    assert scheduler.log.splitlines()[-1].endswith("Scheduler stopped (exit 4)")


@pytest.mark.postgresql
def test_a_server_that_does_not_answer_is_given_up_and_waited_for(
    server: postgres.Server, network: Tree, proxy: Proxy
) -> None:
    make(network)
    scheduler = network.start_scheduler(settings=LEASE)
    wait_for_more(network, 2)
    with proxy.silence(lossy=True):
        wait_for(lambda: away(scheduler), what="it notices")
    wait_for_more(network, 3, timeout=10.0)
    wait_for(lambda: back(scheduler) == ["scheduler"], what="it is said once")
    with proxy.silence():
        wait_for(lambda: len(away(scheduler)) == 2, what="it notices")
        scheduler.signal(signal.SIGTERM)
        assert scheduler.wait(7.0) == 4
    assert_each_second_once(slots(network))
