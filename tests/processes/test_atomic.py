"""Atomic jobs in real trees: killed, frozen, beside others, and under the project's own default of isolation."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_jobs.models import Job
from tests.app.atomic_jobs import die_in, hook_and_wait, lock_and_wait, write_and, write_and_wait
from tests.app.jobs import wait_for_file
from tests.app.models import Effect
from tests.harness import Tree, wait_for
from tests.processes.common import (
    LEASE_2,
    effects,
    lines,
    on_postgresql,
    run_beside_others,
    state,
    wait_for_effect,
    wait_seconds,
    with_processes,
)

pytestmark = with_processes


def note(job: Job) -> str | None:
    job.refresh()
    return (job.progress or {}).get("note")


class IsolatedTree(Tree):
    """Starts trees of a project whose default is REPEATABLE READ."""

    def environment(self, settings: dict[str, Any]) -> dict[str, str]:
        found = super().environment(settings)
        databases = json.loads(found["DJANGO_JOBS_TEST_DATABASES"])
        databases["default"]["OPTIONS"] = {**(databases["default"]["OPTIONS"] or {}), "isolation_level": 3}
        return {**found, "DJANGO_JOBS_TEST_DATABASES": json.dumps(databases)}


@pytest.fixture
def isolated(tree: Tree) -> Iterator[Tree]:
    found = IsolatedTree(tree.alias, tree.directory)
    yield found
    found.end_all()


def test_atomic_jobs_and_their_follow_ups_are_done_once(tree: Tree) -> None:
    jobs = [write_and.enqueue(f"{number}", "follow up") for number in range(20)]
    workers = tree.start("--burst")
    assert workers.wait() == 0
    assert {state(job) for job in jobs} == {("done", 0, 0, 1)}
    assert sorted(key for key, _ in effects(tree)) == sorted(
        [*(str(number) for number in range(20)), *["follow up"] * 20]
    )
    assert not lines(workers, "ERROR")


@pytest.mark.parametrize(("when", "runs"), [("handler", 2), ("hook", 1)])
def test_a_job_whose_process_is_killed_has_taken_effect_once(tree: Tree, when: str, runs: int) -> None:
    job = die_in.enqueue("a", when)
    workers = tree.start()
    wait_for(lambda: lines(workers, "died: "))
    run_beside_others(tree)
    tree.wait_for_status(job, "done")
    # The process may have claimed this one before it died: then it is the second run of it.
    wait_for(lambda: effects(tree, key="a:after"))
    assert effects(tree, key="a") == [("a", runs)]
    assert tree.count() == 2
    assert state(job)[3] == runs
    assert workers.stop() == 0


@on_postgresql
def test_an_atomic_job_and_a_plain_one_keep_their_leases_for_many_heartbeats_under_repeatable_read(
    isolated: Tree, tmp_path: Path
) -> None:
    jobs = [write_and_wait.enqueue("a", str(tmp_path)), wait_for_file.enqueue("plain", str(tmp_path / "plain"))]
    workers = isolated.start(settings=LEASE_2)
    wait_for_effect(isolated, "plain:start")
    wait_for(lambda: (tmp_path / "a.1.started").exists())
    wait_seconds(2.5)  # longer than a lease, and four heartbeats
    for name in ("a.1", "plain"):
        (tmp_path / name).touch()
    for job in jobs:
        isolated.wait_for_status(job, "done")
        assert state(job) == ("done", 0, 0, 1)
    assert effects(isolated, key="a") == [("a", 1)]
    assert workers.stop() == 0


@on_postgresql
def test_a_run_whose_hooks_take_long_has_not_lost_its_lease(tree: Tree, tmp_path: Path) -> None:
    job = hook_and_wait.enqueue("a", str(tmp_path))
    workers = tree.start(settings=LEASE_2)
    wait_for(lambda: (tmp_path / "a.1.started").exists())
    assert state(job) == ("done", 0, 0, 1)
    wait_seconds(1.5)  # two heartbeats
    (tmp_path / "a.1").touch()
    assert workers.stop() == 0
    assert not lines(workers, "Lost lease")


@on_postgresql
def test_a_frozen_run_that_another_has_followed_rolls_back(tree: Tree, tmp_path: Path) -> None:
    job = write_and_wait.enqueue("a", str(tmp_path))
    frozen = tree.start(settings=LEASE_2)
    wait_for(lambda: (tmp_path / "a.1.started").exists())
    frozen.signal_tree(signal.SIGSTOP)
    other = tree.start(settings=LEASE_2)
    wait_for(lambda: (tmp_path / "a.2.started").exists())
    (tmp_path / "a.1").touch()
    frozen.signal_tree(signal.SIGCONT)
    wait_for(lambda: lines(frozen, f"Lost lease: run 1 of job {job.pk} ended"))
    assert (state(job)[0], effects(tree)) == ("running", [])
    (tmp_path / "a.2").touch()
    tree.wait_for_status(job, "done")
    assert (state(job)[3], job.result, effects(tree)) == (2, 2, [("a", 2)])
    assert frozen.stop() == 0
    assert other.stop() == 0


@on_postgresql
def test_the_locks_of_a_frozen_process_are_gone_after_atomic_idle(tree: Tree, tmp_path: Path) -> None:
    Effect.objects.using(tree.alias).create(key="a")
    job = lock_and_wait.enqueue("a", str(tmp_path))
    frozen = tree.start(settings={"ATOMIC_IDLE": 1})
    wait_for(lambda: (tmp_path / "a.1.started").exists())
    frozen.signal_tree(signal.SIGSTOP)
    with connections[tree.alias].cursor() as cursor:
        cursor.execute("SET lock_timeout = '20s'")
        cursor.execute("UPDATE app_effect SET pid = 7 WHERE key = 'a'")
        cursor.execute("SET lock_timeout = 0")
    (tmp_path / "a.1").touch()
    (tmp_path / "a.2").touch()
    frozen.signal_tree(signal.SIGCONT)
    tree.wait_for_status(job, "done", timeout=60)
    assert effects(tree) == [("a", 2)]
    assert frozen.stop() == 0


@on_postgresql
def test_progress_of_an_atomic_run_is_seen_while_it_runs(tree: Tree, tmp_path: Path) -> None:
    job = write_and_wait.enqueue("a", str(tmp_path))
    workers = tree.start()
    wait_for(lambda: note(job) == "started")
    assert state(job)[0] == "running"
    (tmp_path / "a.1").touch()
    tree.wait_for_status(job, "done")
    assert note(job) == "ended"
    assert workers.stop() == 0
