"""What people ask of worker processes, carried out by those."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_jobs import processes
from django_jobs.engines.base import Engine
from django_jobs.models import Job, Worker
from django_jobs.workers.registration import forget_silent, register
from tests.app.jobs import hold_interpreter, nothing, wait_for_file
from tests.app.process_jobs import end_by_file
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import lines, on_postgresql, state, wait_for_effect, wait_seconds, with_processes
from tests.processes.parts import Tables

pytestmark = with_processes

# What is asked is heard with a heartbeat.
QUICK = {"LEASE": 2, "HEARTBEAT": 0.3}


def row(tree: Tree, pid: int) -> Worker:
    found: Worker = Worker.objects.using(tree.alias).get(pid=pid)
    return found


def pid_of(tree: Tree, job: Job) -> int:
    """Return the pid of the process that runs a job."""
    job.refresh()
    worker: Worker = Worker.objects.using(tree.alias).get(pk=str(job.locked_by).split(":")[0])
    return worker.pid


def make_quiet(tree: Tree, workers: RunWorkers, pid: int) -> None:
    assert processes.quiet(row(tree, pid).pk)
    wait_for(lambda: lines(workers, f"Worker process {pid} claims nothing more"), what="it is quiet")


def test_a_quiet_process_claims_nothing_while_its_runs_and_its_neighbour_go_on(tree: Tree, tmp_path: Path) -> None:
    workers = tree.start("--processes", "2", "--threads", "1", settings=QUICK)
    workers.wait_until_ready(2)
    runs = end_by_file.enqueue("a", str(tmp_path))
    wait_for_effect(tree, "a:start")
    quiet = pid_of(tree, runs)
    make_quiet(tree, workers, quiet)
    (tmp_path / "a.1").write_text("return")
    assert tree.wait_for_status(runs, "done").result == 1
    pids = set()
    for number in range(6):
        job = end_by_file.enqueue(f"b{number}", str(tmp_path))
        wait_for_effect(tree, f"b{number}:start")
        pids.add(pid_of(tree, job))
        (tmp_path / f"b{number}.1").write_text("return")
        tree.wait_for_status(job, "done")
    assert pids == set(workers.worker_pids()) - {quiet}


def test_a_quiet_process_gives_back_at_once_what_it_has_not_started(tree: Tree, tmp_path: Path) -> None:
    workers = tree.start("--processes", "2", "--threads", "1", settings=QUICK)
    first, second = workers.wait_until_ready(2)
    make_quiet(tree, workers, second)
    (tmp_path / "there").write_text("")
    calls = [wait_for_file.call(f"a{number}", str(tmp_path / "there")) for number in range(200)]
    wait_for_file.enqueue_many(calls)  # so that it knows how short they are, and claims ahead
    wait_for(lambda: tree.count(status="done") == 200, what="all have run")
    calls[0] = wait_for_file.call("blocker", str(tmp_path / "go"))
    blocker, *others = wait_for_file.enqueue_many(calls[:20])
    wait_for_effect(tree, "blocker:start")
    wait_for(lambda: tree.count(status="running") > 1, what="more are claimed")
    make_quiet(tree, workers, first)
    assert processes.work(row(tree, second).pk)
    # By itself it would give them back after five seconds.
    wait_for(lambda: tree.count(status="done", pk__in=others) == 19, timeout=4, what="the neighbour has run them")
    assert tree.count(status="running", pk=blocker) == 1
    (tmp_path / "go").write_text("")


def test_a_quiet_process_works_again_when_it_is_told_to(tree: Tree) -> None:
    workers = tree.start(settings=QUICK)
    (pid,) = workers.wait_until_ready()
    make_quiet(tree, workers, pid)
    job = nothing.enqueue()
    wait_seconds(1.5)
    assert state(job) == ("ready", 0, 0, 0)
    assert processes.work(row(tree, pid).pk)
    tree.wait_for_status(job, "done")
    assert lines(workers, f"Worker process {pid} claims again")
    assert workers.worker_pids() == [pid]


def test_a_burst_ends_although_one_of_its_processes_is_quiet(tree: Tree, tmp_path: Path) -> None:
    job = end_by_file.enqueue("a", str(tmp_path))
    workers = tree.start("--burst", settings=QUICK)
    wait_for_effect(tree, "a:start")
    make_quiet(tree, workers, pid_of(tree, job))
    (tmp_path / "a.1").write_text("return")
    assert workers.wait() == 0, workers.log


def test_stop_ends_the_whole_runworkers_in_order_and_no_other(tree: Tree, tmp_path: Path) -> None:
    other = tree.start(settings=QUICK) if tree.alias == "default" else None
    if other is not None:
        make_quiet(tree, other, other.wait_until_ready()[0])
    workers = tree.start("--processes", "2", "--threads", "2", settings={**QUICK, "SHUTDOWN_GRACE": 20})
    first, _ = workers.wait_until_ready(2)
    runs = [end_by_file.enqueue(f"a{number}", str(tmp_path)) for number in range(4)]
    for number in range(4):
        wait_for_effect(tree, f"a{number}:start")
    waits = [nothing.enqueue(number) for number in range(10)]
    assert processes.stop(row(tree, first).pk) == 2
    wait_for(lambda: lines(workers, "A person asked to stop: no more claims"), what="it stops")
    for number in range(4):
        (tmp_path / f"a{number}.1").write_text("return")
    assert workers.wait() == 0, workers.log
    assert [state(job)[0] for job in runs] == ["done"] * 4
    assert {state(job)[:3] for job in waits} == {("ready", 0, 0)}
    if other is not None:
        other.assert_runs()
        assert row(tree, other.worker_pids()[0]).asked == "quiet"


def test_stop_cuts_runs_when_the_grace_is_over_and_they_go_back(tree: Tree, tmp_path: Path) -> None:
    workers = tree.start(settings={**QUICK, "SHUTDOWN_GRACE": 1})
    (pid,) = workers.wait_until_ready()
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    wait_for_effect(tree, "a:start")
    assert processes.stop(row(tree, pid).pk) == 1
    assert workers.wait() == 3, workers.log
    assert state(job)[:3] == ("ready", 0, 0)


def test_the_stacks_of_a_process_name_the_function_that_each_thread_is_in(tree: Tree, tmp_path: Path) -> None:
    workers = tree.start(settings=QUICK)
    (pid,) = workers.wait_until_ready()
    wait_for_file.enqueue("a", str(tmp_path / "go"))
    wait_for_effect(tree, "a:start")
    wait_seconds(1.0)
    assert row(tree, pid).stacks_at is None  # nobody has asked
    assert processes.dump(row(tree, pid).pk)
    wait_for(lambda: row(tree, pid).stacks_at, what="stacks")
    found = row(tree, pid)
    assert found.stacks_asked_at is None
    assert "in wait_for_file" in found.stacks
    assert found.stacks.count("most recent call first") > 3
    assert "in _step" in found.stacks or "in _wait" in found.stacks
    first = found.stacks_at
    assert processes.dump(found.pk)
    again = wait_for(lambda: row(tree, pid) if row(tree, pid).stacks_at != first else None)
    assert again is not None
    assert again.stacks.count("in wait_for_file") == found.stacks.count("in wait_for_file")
    (tmp_path / "go").write_text("")
    assert "most recent call first" not in workers.log


def test_the_stacks_of_a_handler_that_holds_the_interpreter_come_all_the_same(tree: Tree) -> None:
    workers = tree.start(settings=QUICK)
    (pid,) = workers.wait_until_ready()
    hold_interpreter.enqueue("a", 5)
    wait_for_effect(tree, "a:start")
    assert processes.dump(row(tree, pid).pk)
    found = wait_for(lambda: row(tree, pid).stacks, timeout=4)
    assert "in hold_interpreter" in found


def test_a_frozen_process_gives_its_stacks_when_it_goes_on(tree: Tree, tmp_path: Path) -> None:
    workers = tree.start(settings={**QUICK, "LEASE": 10})
    (pid,) = workers.wait_until_ready()
    wait_for_file.enqueue("a", str(tmp_path / "go"))
    wait_for_effect(tree, "a:start")
    os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        assert processes.dump(row(tree, pid).pk)
        wait_seconds(1.5)
    found = row(tree, pid)
    assert found.stacks_asked_at is not None
    assert (found.stacks, found.stacks_at) == ("", None)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: row(tree, pid).stacks, what="stacks")
    found = row(tree, pid)
    assert found.stacks_asked_at is None
    assert found.stacks.count("in wait_for_file") == 1
    (tmp_path / "go").write_text("")


def test_nobody_is_asked_who_has_ended_or_been_silent_for_a_lease(tree: Tree) -> None:
    rows = Worker.objects.using(tree.alias)
    values = {"host": "h", "pid": 1, "supervisor_pid": 1, "types": [], "threads": 1, "supervisor": "s1"}
    silent = rows.create(id="a1", **values)
    rows.filter(pk="a1").update(heartbeat_at=Now() - timedelta(seconds=31))
    for ask in (processes.quiet, processes.work, processes.dump, processes.stop):
        assert not ask(silent.pk)
        assert not ask("gone")
    found = rows.get()
    assert (found.asked, found.stacks_asked_at) == ("", None)


def test_nothing_of_it_is_left_in_the_file_system(tree: Tree) -> None:
    workers = tree.start(settings=QUICK)
    (pid,) = workers.wait_until_ready()
    room = Path(tempfile.gettempdir()) / f"django_jobs-{row(tree, pid).supervisor}"
    assert room.is_dir()
    assert room.stat().st_mode & 0o077 == 0
    assert workers.stop() == 0
    assert not room.exists()


@on_postgresql
def test_what_a_killed_supervisor_had_for_it_is_taken_away_as_well(tree: Tree) -> None:
    workers = tree.start(settings=QUICK)
    (pid,) = workers.wait_until_ready()
    room = Path(tempfile.gettempdir()) / f"django_jobs-{row(tree, pid).supervisor}"
    assert room.is_dir()
    workers.signal(signal.SIGKILL)
    wait_for(lambda: not room.exists(), what="its room is gone")


@on_postgresql
def test_what_never_came_to_start_processes_takes_it_away_as_well(tree: Tree, tmp_path: Path) -> None:
    databases = json.loads(tree.environment({})["DJANGO_JOBS_TEST_DATABASES"])
    databases["default"] |= {"HOST": "127.0.0.1", "PORT": "1"}  # nobody is there
    env = {"TMPDIR": str(tmp_path), "DJANGO_JOBS_TEST_DATABASES": json.dumps(databases)}
    workers = tree.start(settings=QUICK, env=env)
    wait_for(lambda: list(tmp_path.glob("django_jobs-*")), what="its room")
    assert workers.stop() == 4, workers.log
    assert not list(tmp_path.glob("django_jobs-*"))


def test_what_is_asked_is_heard_by_the_statement_that_a_heartbeat_sends_anyway(engine: Engine) -> None:
    tables = Tables(engine)
    register(engine, tables.plan, tables.child.incarnation, tables.child.pid)
    other = Worker.objects.using(engine.alias).create(
        id="other", host="h", pid=1, supervisor_pid=1, types=[], threads=1, asked="stop"
    )
    for asked, heard in [("", (False, False)), ("quiet", (True, False)), ("", (False, False)), ("stop", (False, True))]:
        Worker.objects.using(engine.alias).filter(pk=tables.child.incarnation).update(asked=asked)
        with CaptureQueriesContext(connections[engine.alias]) as sent:
            tables.pulse.beat()
        assert len(sent) == 1, [query["sql"] for query in sent]
        assert (tables.region.quiet_asked, tables.pulse.orders.stop_asked) == heard
    assert not tables.pulse.orders.waiting
    other.refresh_from_db()
    assert other.asked == "stop"


def test_what_a_supervisor_does_again_and_again_leaves_the_orm_to_the_pages_that_all_its_processes_share(
    engine: Engine,
) -> None:
    tables = Tables(engine)
    register(engine, tables.plan, tables.child.incarnation, tables.child.pid)
    called: set[str] = set()
    sys.setprofile(lambda frame, event, arg: called.add(frame.f_code.co_filename))
    try:
        tables.pulse.beat()
        if engine.reaps_by_lease:
            forget_silent(engine, timedelta(minutes=5))
    finally:
        sys.setprofile(None)
    assert any(name.endswith("orders.py") for name in called)
    assert [name for name in called if "/django/db/models/" in name] == []


@on_postgresql
def test_the_row_of_a_process_that_is_silent_for_long_is_deleted(engine: Engine) -> None:
    rows = Worker.objects.using(engine.alias)
    for name, ago in [("old", 301), ("young", 299)]:
        rows.create(id=name, host="h", pid=1, supervisor_pid=1, types=[], threads=1)
        rows.filter(pk=name).update(heartbeat_at=Now() - timedelta(seconds=ago))
    forget_silent(engine, timedelta(minutes=5))
    assert [row.pk for row in rows.all()] == ["young"]
