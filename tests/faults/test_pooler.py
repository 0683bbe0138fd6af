"""Everything through PgBouncer in transaction mode, where each transaction may have another session of the server."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.engines.postgresql import PostgreSQLEngine
from django_jobs.engines.postgresql_prepared import AFTER
from django_jobs.models import Schedule
from example_project import postgres
from tests import router
from tests.app.deadline_jobs import ask_for_long
from tests.app.jobs import fail_until, leave_effect, nothing, wait_for_file
from tests.app.storm_jobs import book, pay, send_receipt
from tests.faults.invariants import assert_invariants
from tests.faults.pooler import Pooler
from tests.harness import Tree, wait_for
from tests.processes.common import effects, ends, lines, state, wait_for_effect
from tests.processes.outages import ALIAS

pytestmark = [pytest.mark.process, pytest.mark.postgresql]


def test_a_pooler_is_seen_and_nothing_is_set_on_its_sessions(
    server: postgres.Server, pooler: Pooler, behind: str
) -> None:
    for alias, words in ((ALIAS, ""), (behind, " through a pooler")):
        engine = PostgreSQLEngine(alias)
        engine.prepare(5.0, "scheduler")
        assert engine.describe().endswith(words or tuple("0123456789"))
        assert engine.probe(timeout=2)
        with connections[alias].cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone()[0] == ("0" if words else "5s")
    ours = {"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "enable_bitmapscan"}
    for found in pooler.settings_of_sessions():
        assert not ours & set(found)
        assert not {name for name in found if "isolation" in name}


def test_enqueueing_leaves_no_prepared_statement_on_sessions_that_others_get(pooler: Pooler, behind: str) -> None:
    for alias, kept in ((ALIAS, 1), (behind, 0)):
        router.jobs_alias = alias
        for _ in range(AFTER + 3):
            nothing.enqueue()
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements")
            assert cursor.fetchone() == (kept,)


def test_a_tree_and_enqueuers_behind_a_pooler_do_all_that_they_do_without(
    pooled: Tree, behind: str, tmp_path: Path
) -> None:
    every_second = Schedule(
        name="tick", type=nothing.name, every=timedelta(seconds=1), payload={"args": [], "kwargs": {}}
    )
    every_second.save(using=ALIAS)
    workers = pooled.start("--processes", "2", "--threads", "2")
    assert len(workers.wait_until_ready(2)) == 2
    keyed = [leave_effect.using(idempotency_key="one").enqueue("keyed") for _ in range(3)]
    assert len({job.pk for job in keyed}) == 1
    many = leave_effect.enqueue_many([leave_effect.call(f"many {number}") for number in range(50)])
    retried = fail_until.enqueue(3)
    killed = wait_for_file.enqueue("killed", str(tmp_path / "go"))
    os.kill(wait_for_effect(pooled, "killed:start"), signal.SIGKILL)
    (tmp_path / "go").touch()
    for job in (keyed[0], retried, killed):
        pooled.wait_for_status(job, "done")
    wait_for(lambda: pooled.count(pk__in=many, status="done") == 50)
    atomic = [pay.enqueue(number) for number in range(20)] + [book.enqueue(number) for number in range(20)]
    for job in atomic:
        pooled.wait_for_status(job, "done")
    wait_for(lambda: pooled.count(type=send_receipt.name, status="done") == 20)
    for kind in ("pay", "book"):
        assert len(effects(pooled, key__startswith=f"{kind}:")) == 20
    late = ask_for_long.using(timeout=1.0, max_attempts=1).enqueue("late")
    pooled.wait_for_status(late, "dead")
    assert (state(retried)[1], [cause for _, cause in ends(killed)]) == (2, ["died"])
    assert "canceling statement due to user request" in late.last_error
    assert {key for key, _ in effects(pooled, key__startswith="many")} == {f"many {number}" for number in range(50)}
    ticks = {job.slot for job in pooled.jobs(schedule="tick", status="done")}
    wait_for(lambda: len({job.slot for job in pooled.jobs(schedule="tick", status="done")} - ticks) >= 2)
    assert len(lines(workers, "ERROR")) == 2  # the death, and the deadline
    Schedule.objects.using(ALIAS).all().delete()
    assert_invariants(pooled)
    assert workers.stop() == 0


def test_a_crash_of_the_server_behind_a_pooler_is_waited_out_and_charges_nothing(
    server: postgres.Server, pooled: Tree
) -> None:
    workers = pooled.start("--threads", "2", settings={"LEASE": 3, "HEARTBEAT": 1})
    pids = workers.wait_until_ready()
    for number in range(40):
        leave_effect.using(delay=number / 10).enqueue(str(number))
    wait_for(lambda: pooled.count(status="done") >= 5)
    connections[ALIAS].close()
    server.restart("immediate")
    wait_for(lambda: pooled.count(status="done") == 40, 60.0, "all are done")
    assert {key for key, _ in effects(pooled)} == {str(number) for number in range(40)}
    assert [state(job) for job in pooled.jobs(attempts__gt=0)] == []
    assert workers.worker_pids() == pids
    assert_invariants(pooled)
    assert workers.stop() == 0


def test_behind_a_pooler_it_is_said_once_that_nobody_is_woken_and_how_to_be(pooled: Tree) -> None:
    workers = pooled.start("--no-scheduler")
    workers.wait_until_ready()
    wait_for(lambda: lines(workers, "NOTIFY"), what="it says so")
    for number in range(5):
        pooled.wait_for_status(leave_effect.enqueue(str(number)), "done")
    (said,) = lines(workers, "NOTIFY")
    assert "Idle workers are not woken by NOTIFY, and look for jobs every 0.2 s: LISTEN hears nothing" in said
    assert "Give DJANGO_JOBS['LISTEN_DSN'] a connection that reaches the server without it" in said
    assert workers.stop() == 0


def test_with_a_connection_that_listens_beside_the_pooler_workers_are_woken(
    server: postgres.Server, pooled: Tree, behind: str
) -> None:
    workers = pooled.start("--no-scheduler", settings={"LISTEN_DSN": server.url, "POLL_INTERVAL": 120, "LEASE": 30})
    workers.wait_until_ready()
    wait_for(lambda: lines(workers, "are woken by NOTIFY"), what="it listens")
    for number in range(5):
        pooled.wait_for_status(leave_effect.enqueue(str(number)), "done")
    assert workers.stop() == 0


def test_a_connection_string_to_another_database_is_said_to_hear_nothing(server: postgres.Server, pooled: Tree) -> None:
    dsn = server.url.rsplit("/", 1)[0] + "/template1"
    workers = pooled.start("--no-scheduler", settings={"LISTEN_DSN": dsn})
    workers.wait_until_ready()
    wait_for(lambda: lines(workers, "the connection of DJANGO_JOBS['LISTEN_DSN'] hears nothing"), what="it says so")
    pooled.wait_for_status(leave_effect.enqueue("a"), "done")
    assert workers.stop() == 0
