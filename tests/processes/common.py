"""Words that the tests of worker processes share."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs.models import Job, Worker
from tests.app.models import Effect
from tests.harness import Command, RunWorkers, Tree, wait_for

with_tables = pytest.mark.django_db(transaction=True, databases="__all__", available_apps=["django_jobs", "tests.app"])
with_processes = [pytest.mark.process, with_tables]
on_postgresql = pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)
on_sqlite = pytest.mark.parametrize("vendor", ["sqlite"], indirect=True)
# Whether it is there, or is to be missed.
may_fake_time = shutil.which("faketime") is not None or "REQUIRE_FAKETIME" in os.environ
needs_faketime = pytest.mark.skipif(
    not may_fake_time,
    reason="faketime is not installed; REQUIRE_FAKETIME=1 makes this a failure",
)

# For tests that wait until a lease runs out.
LEASE_2 = {"LEASE": 2, "HEARTBEAT": 0.6}


def effects(tree: Tree, **conditions: Any) -> list[tuple[str, int]]:
    """Return the key and the run of each effect, in the order of keys and runs."""
    found = Effect.objects.using(tree.alias).filter(**conditions)
    return sorted(found.values_list("key", "run"))


def wait_for_effect(tree: Tree, key: str, run: int = 1, timeout: float = 30.0) -> int:
    """Return the pid that an effect names, as soon as it is there."""
    found = Effect.objects.using(tree.alias).filter(key=key, run=run).values_list("pid", flat=True)
    return wait_for(lambda: next(iter(found.all()), None), timeout, f"effect {key} of run {run}") or 0


def lives(pid: int) -> bool:
    """Tell whether a process is there and not merely waiting to be waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def session_pids(session: int) -> list[int]:
    """Return the living processes of a session: all that a `runworkers` and its jobs have started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session and lives(int(entry.name)):
                    found.append(int(entry.name))
            except ProcessLookupError:
                pass
    return found


def wait_until_gone(workers: RunWorkers, timeout: float = 30.0) -> None:
    wait_for(lambda: not session_pids(workers.pid), timeout, f"the tree of {workers.pid} is gone")


def wait_seconds(seconds: float) -> None:
    """Let time pass, where time itself is what is tested."""
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, seconds + 5)


def lines(workers: Command, text: str) -> list[str]:
    return [line for line in workers.log.splitlines() if text in line]


def ends(job: Job) -> list[tuple[int, str]]:
    """Return run and cause of each line of a job's history."""
    return [(line["run"], line["cause"]) for line in job.history]


def state(job: Job) -> tuple[str, int, int, int]:
    """Return what a job has come to: status, attempts, losses, runs."""
    job.refresh()
    return (job.status, job.attempts, job.losses, job.token)


def run_beside_others(tree: Tree) -> None:
    """Have no job be run alone, although its process died under it: as if that had been no doing of its own."""
    wait_for(lambda: not Job.objects.using(tree.alias).running().exists())
    Job.objects.using(tree.alias).filter(parked="suspect").update(parked=None, suspect=False)


def assert_in_order(tree: Tree) -> None:
    """Nothing runs without a living holder, and no lease is older than its limit."""

    def orderly() -> bool:
        alive = {worker.pk for worker in Worker.objects.using(tree.alias).all() if lives(worker.pid)}
        running = Job.objects.using(tree.alias).running()
        held = all(str(job.locked_by).split(":")[0] in alive for job in running)
        return held and not running.filter(locked_until__lt=Now()).exists()

    wait_for(orderly, 5.0, f"all in order: {list(Job.objects.using(tree.alias).running().values())}")
