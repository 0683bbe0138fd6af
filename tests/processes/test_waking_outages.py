"""Waking by NOTIFY when the database is treated badly."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connections

from django_jobs import notify
from example_project import postgres
from tests.app.jobs import nothing
from tests.harness import Tree, wait_for
from tests.processes.outages import ALIAS, back, down
from tests.processes.test_waking import listeners, listening, run_one

pytestmark = [pytest.mark.process, pytest.mark.postgresql]


def test_after_an_outage_workers_are_woken_again(trees: Tree, server: postgres.Server) -> None:
    workers = listening(trees)
    run_one(trees)
    with down(server, (workers, "supervisor")):
        pass
    wait_for(lambda: "supervisor" in back(workers))
    wait_for(lambda: listeners(trees), what="it listens again")
    run_one(trees, "after it")
    assert workers.stop() == 0


def test_an_enqueue_does_not_wait_for_the_lock_that_others_hold_while_they_commit(
    server: postgres.Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.log._failures_said", {})
    monkeypatch.setattr(notify, "_window", notify._Window())
    with psycopg.connect(server.url, autocommit=True) as stuck, connections[ALIAS].cursor() as cursor:
        cursor.execute("SET synchronous_commit = local")
        cursor.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        cursor.execute("SELECT pg_reload_conf()")
        wait_for(lambda: _shown(cursor, "synchronous_standby_names") == "nobody")
        # It is in force when the checkpointer has read it, which it does before a checkpoint.
        cursor.execute("CHECKPOINT")
        # It waits for a standby that is not there, and holds the lock of all that send a NOTIFY.
        stuck.pgconn.send_query(b"BEGIN; CREATE TABLE written (); NOTIFY anything; COMMIT")
        stuck.pgconn.flush()
        wait_for(lambda: _waits(cursor, "SyncRep"), what="it has the lock")
        job = nothing.enqueue(1)
        assert job.refresh().status == "ready"
        assert len(caplog.messages) == 1
        assert "lock timeout" in caplog.messages[0]
        cursor.execute("SELECT pg_cancel_backend(%s)", [stuck.pgconn.backend_pid])
        while stuck.pgconn.get_result() is not None:
            pass


def _shown(cursor: Any, name: str) -> str:
    cursor.execute("SELECT current_setting(%s)", [name])
    return str(cursor.fetchone()[0])


def _waits(cursor: Any, event: str) -> bool:
    cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = %s", [event])
    return bool(cursor.fetchone()[0])
