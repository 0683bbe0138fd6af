"""Idle workers that are woken by NOTIFY: here a poll comes so late that nothing is done in time without it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models import F

from django_jobs import pause, resume
from django_jobs.models import Schedule, Worker
from tests.app.jobs import leave_effect, nothing, stop_when_asked, wait_for_file
from tests.app.storm_jobs import pay
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import effects, ends, lines, on_postgresql, wait_for_effect, with_processes

pytestmark = [*with_processes, on_postgresql]
# Longer than any test waits for a job, and so is what an idle worker does by itself.
SELDOM = {"POLL_INTERVAL": 120, "LEASE": 30, "HEARTBEAT": 10}
SOON = 30.0
LISTENERS = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = 'django_jobs:listener'"


def listening(tree: Tree, *options: str, processes: int = 1, **settings: object) -> RunWorkers:
    """Start workers, and wait until they are idle and listen."""
    workers = tree.start("--no-scheduler", "--processes", str(processes), *options, settings={**SELDOM, **settings})
    workers.wait_until_ready(processes)
    wait_for(lambda: lines(workers, "are woken by NOTIFY"), what="it listens")
    return workers


def listeners(tree: Tree) -> list[Any]:
    with connections[tree.alias].cursor() as cursor:
        cursor.execute(LISTENERS)
        return list(cursor.fetchall())


def run_one(tree: Tree, key: str = "a") -> None:
    """Have a job run that nobody would find by himself."""
    tree.wait_for_status(leave_effect.enqueue(key), "done", timeout=SOON)


def test_an_idle_worker_starts_jobs_when_they_are_committed(tree: Tree) -> None:
    workers = listening(tree)
    for number in range(5):
        run_one(tree, str(number))
    with transaction.atomic(using=tree.alias):
        job = leave_effect.enqueue("in a transaction")
    tree.wait_for_status(job, "done", timeout=SOON)
    assert workers.stop() == 0


def test_what_follows_a_job_that_was_told_is_found_although_it_was_not(tree: Tree) -> None:
    workers = listening(tree)
    for number in range(5):
        jobs = [leave_effect.enqueue(f"{number}: {place}") for place in range(3)]
        for job in jobs:
            tree.wait_for_status(job, "done", timeout=SOON)
    assert workers.stop() == 0


def test_one_word_of_many_jobs_is_passed_on_until_all_run(tree: Tree, tmp_path: Path) -> None:
    workers = listening(tree, "--threads", "1", processes=4)
    go = str(tmp_path / "go")
    wait_for_file.enqueue_many([wait_for_file.call(str(number), go) for number in range(4)])
    wait_for(lambda: len(effects(tree)) == 4, SOON, "all four have started")
    Path(go).touch()
    wait_for(lambda: tree.count(status="done") == 4)
    assert workers.stop() == 0


def test_a_worker_with_a_free_thread_is_woken_as_well(tree: Tree, tmp_path: Path) -> None:
    workers = listening(tree, "--threads", "2")
    long = wait_for_file.enqueue("long", str(tmp_path / "go"))
    wait_for_effect(tree, "long:start")
    for number in range(3):
        run_one(tree, str(number))
    (tmp_path / "go").touch()
    tree.wait_for_status(long, "done")
    assert workers.stop() == 0


def test_a_requeue_and_the_end_of_a_pause_start_jobs_at_once(tree: Tree) -> None:
    workers = listening(tree)
    job = leave_effect.enqueue("a")
    tree.wait_for_status(job, "done", timeout=SOON)
    job.requeue()
    wait_for_effect(tree, "a", run=2, timeout=SOON)
    kinds: list[dict[str, Any]] = [{"queue": "default"}, {"type": leave_effect.name}]
    for what in kinds:
        pause(**what)
        held = leave_effect.enqueue(str(what))
        wait_for(lambda: tree.count(pk=held.pk, parked="pause") or "queue" in what, SOON)  # noqa: B023
        resume(**what)
        tree.wait_for_status(held, "done", timeout=SOON)
    assert workers.stop() == 0


def test_a_job_that_an_atomic_one_enqueues_starts_at_once(tree: Tree) -> None:
    workers = listening(tree)
    first = pay.enqueue(1)
    tree.wait_for_status(first, "done", timeout=SOON)
    wait_for(lambda: tree.count(status="done") == 2, SOON, "its follow-up")
    assert workers.stop() == 0


def test_the_jobs_of_a_schedule_start_when_a_scheduler_elsewhere_makes_them(tree: Tree) -> None:
    workers = listening(tree)
    tree.start_scheduler().wait_until_ready()
    every = Schedule(name="tick", type=nothing.name, every=timedelta(seconds=1), payload={"args": [], "kwargs": {}})
    every.save(using=tree.alias)
    wait_for(lambda: tree.count(schedule="tick", status="done") >= 3, SOON)
    assert workers.stop() == 0


def test_what_is_given_back_at_a_stop_is_taken_by_others_at_once(tree: Tree, tmp_path: Path) -> None:
    stopping = listening(tree, SHUTDOWN_GRACE=0.2)
    job = wait_for_file.enqueue("a", str(tmp_path / "go"))
    wait_for_effect(tree, "a:start")
    others = listening(tree)
    assert stopping.stop() == 3
    wait_for_effect(tree, "a:start", run=2, timeout=SOON)
    (tmp_path / "go").touch()
    tree.wait_for_status(job, "done")
    assert others.stop() == 0


def test_a_run_that_wants_to_be_run_again_at_once_is_taken_by_others(tree: Tree) -> None:
    stopping = listening(tree)
    job = stop_when_asked.enqueue("a")
    wait_for_effect(tree, "a:start")
    others = listening(tree)
    assert stopping.stop() == 0
    wait_for_effect(tree, "a:start", run=2, timeout=SOON)
    assert ends(job.refresh()) == [(1, "snoozed")]
    assert others.stop() == 0


def test_a_listener_sends_nothing_while_it_listens(tree: Tree) -> None:
    workers = listening(tree)
    before = listeners(tree)
    run_one(tree)
    assert listeners(tree) == before
    assert len(before) == 1
    assert workers.stop() == 0


def test_with_listen_off_nobody_listens_and_jobs_are_found_by_looking(tree: Tree) -> None:
    workers = tree.start("--no-scheduler", settings={"LISTEN": False})
    workers.wait_until_ready()
    run_one(tree)
    assert listeners(tree) == []
    assert lines(workers, "NOTIFY") == []
    assert workers.stop() == 0


@pytest.mark.parametrize(("settings", "word"), [({}, "NOTIFY"), ({"LISTEN": False}, "poll")])
def test_the_status_says_whether_workers_are_woken(tree: Tree, settings: dict[str, Any], word: str) -> None:
    workers = tree.start("--no-scheduler", settings={"HEARTBEAT": 0.3, **settings})
    workers.wait_until_ready()
    rows = Worker.objects.using(tree.alias)
    wait_for(lambda: rows.filter(listens=not settings, heartbeat_at__gt=F("started_at")), what="a heartbeat says so")
    (row,) = json.loads(tree.run("jobs", "status", "--json").stdout)["workers"]
    assert row["listens"] is not bool(settings)
    assert tree.run("jobs", "status").stdout.splitlines()[-1].split()[-1] == word
    assert workers.stop() == 0


# What becomes of its connection.


def test_a_listener_whose_connection_was_ended_listens_again(tree: Tree) -> None:
    workers = listening(tree)
    ((pid, _),) = listeners(tree)
    with connections[tree.alias].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    wait_for(lambda: [found for found, _ in listeners(tree) if found != pid], what="it listens again")
    run_one(tree)
    assert len(lines(workers, "listener: the connection broke")) == 1
    assert len(lines(workers, "NOTIFY")) == 1
    assert workers.stop() == 0


@pytest.fixture
def silent() -> Iterator[str]:
    """A connection string to somebody who lets in and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield f"postgresql://me@127.0.0.1:{found.getsockname()[1]}/x"


def test_who_cannot_listen_says_so_once_and_looks_for_jobs(tree: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    dsn = f"postgresql://me:secret@127.0.0.1:{port}/x"
    workers = tree.start("--no-scheduler", settings={"LISTEN_DSN": dsn})
    workers.wait_until_ready()
    for number in range(5):
        run_one(tree, str(number))
    wait_for(lambda: lines(workers, "Idle workers are not woken by NOTIFY, and look for jobs every 0.2 s: "))
    assert len(lines(workers, "NOTIFY")) == 1
    assert len(lines(workers, "the connection of DJANGO_JOBS['LISTEN_DSN'] cannot be had: ")) == 1
    assert "the connection broke" not in workers.log  # it never was
    assert "secret" not in workers.log
    assert workers.stop() == 0


def test_a_stop_does_not_wait_for_a_listener_that_gets_no_answer(tree: Tree, silent: str) -> None:
    workers = tree.start("--no-scheduler", settings={"LISTEN_DSN": silent, "LEASE": 30, "HEARTBEAT": 10})
    workers.wait_until_ready()
    run_one(tree)
    assert workers.stop(timeout=4.5) == 0  # connecting alone would take five


def test_a_template_that_died_is_replaced_beside_a_listener_that_gets_no_answer(tree: Tree, silent: str) -> None:
    workers = tree.start("--no-scheduler", settings={"LISTEN_DSN": silent})
    (worker,) = workers.wait_until_ready()
    os.kill(int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    wait_for(lambda: [pid for pid in workers.worker_pids() if pid != worker], what="another worker")
    run_one(tree)
    assert workers.stop() == 0


def test_a_template_that_died_is_replaced_and_workers_are_woken_again(tree: Tree) -> None:
    workers = listening(tree)
    (worker,) = workers.worker_pids()
    os.kill(int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    wait_for(lambda: [pid for pid in workers.worker_pids() if pid != worker], what="another worker")
    wait_for(lambda: listeners(tree), what="it listens again")
    run_one(tree)
    assert workers.stop() == 0
