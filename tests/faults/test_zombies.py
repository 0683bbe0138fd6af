"""Runs of atomic jobs that are frozen or cut off until after their lease, and come back when another has run."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from django.db import OperationalError, connections, transaction

from example_project import postgres
from tests.app.models import Effect
from tests.app.storm_jobs import hold_row
from tests.faults.invariants import assert_invariants
from tests.harness import Tree, wait_for
from tests.processes.common import LEASE_2, effects, ends, lines, state
from tests.processes.outages import ALIAS
from tests.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgresql]
IDLE = {**LEASE_2, "ATOMIC_IDLE": 4}


def started(directory: Path, run: int) -> None:
    wait_for((directory / f"started.{run}").exists, what=f"run {run} has begun")


def row_is_free(key: str) -> bool:
    try:
        with transaction.atomic(using=ALIAS):
            list(Effect.objects.using(ALIAS).filter(key=key).select_for_update(nowait=True))
    except OperationalError:
        return False
    return True


def test_a_frozen_runs_transaction_keeps_its_locks_no_longer_than_it_may_be_idle(trees: Tree, tmp_path: Path) -> None:
    Effect.objects.using(ALIAS).create(key="row")
    job = hold_row.enqueue("row", str(tmp_path))
    frozen = trees.start("--threads", "1", settings=IDLE)
    started(tmp_path, 1)
    frozen.signal_tree(signal.SIGSTOP)
    began = time.monotonic()
    assert not row_is_free("row")
    wait_for(lambda: row_is_free("row"), what="its lock is gone")
    assert time.monotonic() - began < IDLE["ATOMIC_IDLE"] + 2
    other = trees.start("--threads", "1", settings=IDLE)
    started(tmp_path, 2)
    (tmp_path / "go.1").touch()
    frozen.signal_tree(signal.SIGCONT)
    wait_for(lambda: lines(frozen, "Lost lease: run 1"), what="the first run's end is refused")
    assert effects(trees, key="row:end") == []
    (tmp_path / "go.2").touch()
    trees.wait_for_status(job, "done")
    assert (effects(trees, key="row:end"), effects(trees, key="row")) == ([("row:end", 2)], [("row", 2)])
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert_invariants(trees)
    assert [frozen.stop(), other.stop()] == [0, 0]


@pytest.mark.parametrize("lossy", [False, True], ids=["late", "lost"])
def test_what_a_run_wrote_before_a_silence_longer_than_its_lease_is_rolled_back(
    server: postgres.Server, network: Tree, trees: Tree, proxy: Proxy, tmp_path: Path, lossy: bool
) -> None:
    Effect.objects.using(ALIAS).create(key="row")
    job = hold_row.enqueue("row", str(tmp_path))
    away = network.start("--threads", "1", settings=IDLE)
    started(tmp_path, 1)
    with proxy.silence(lossy=lossy):
        other = trees.start("--threads", "1", settings=IDLE)
        started(tmp_path, 2)
        (tmp_path / "go.1").touch()  # its end is on its way, and will come late or not at all
        (tmp_path / "go.2").touch()
        trees.wait_for_status(job, "done")
        assert effects(trees, key="row:end") == [("row:end", 2)]
    wait_for(lambda: lines(away, "Lost lease: run 1"), what="the first run's end is refused")
    second = hold_row.enqueue("row", str(tmp_path))
    trees.wait_for_status(second, "running", "done")
    (tmp_path / "go.1").touch()
    trees.wait_for_status(second, "done")
    assert [run for _, run in effects(trees, key="row:end")] == [1, 2]
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert_invariants(trees)
    assert [away.stop(), other.stop()] == [0, 0]


def test_a_session_that_is_ended_under_an_atomic_run_rolls_back_all_that_it_wrote(trees: Tree, tmp_path: Path) -> None:
    job = hold_row.enqueue("row", str(tmp_path))
    workers = trees.start("--threads", "1", settings=IDLE)
    started(tmp_path, 1)
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE state = 'idle in transaction' AND application_name = 'django_jobs:worker'"
        )
        assert cursor.fetchone()[0] == 1
    for run in (1, 2):
        (tmp_path / f"go.{run}").touch()
    trees.wait_for_status(job, "done")
    assert effects(trees, key="row:end") == [("row:end", 2)]
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "connection broke")])
    assert_invariants(trees)
    assert workers.stop() == 0
