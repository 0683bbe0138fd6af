"""Real worker trees for tests, and waiting for what they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections

from django_jobs.models import Job, Worker

T = TypeVar("T")
C = TypeVar("C", bound="Command")
ROOT = Path(__file__).parent.parent
# Short enough for a test to see a lease run out, long enough for a busy machine to extend it in time.
SHORT_LEASE = {"LEASE": 3, "HEARTBEAT": 1, "POLL_INTERVAL": 0.2, "SHUTDOWN_GRACE": 5}


def wait_for(condition: Callable[[], T], timeout: float = 30.0, what: str = "") -> T:
    """Return the first true value of `condition`; fail when there is none in `timeout` seconds."""
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"not within {timeout} s: {what or condition}"
        time.sleep(0.02)


class Command:
    """One process of a command that runs until it is stopped, and those that it starts."""

    name = ""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, alias: str) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log
        self._alias = alias

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_runs(self) -> None:
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.log}"

    def tree_pids(self) -> list[int]:
        """Return the pids of the whole tree, the one that was started first."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    found += [int(child) for child in task.read_text().split()]
                except OSError:
                    pass
        return found

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def signal_tree(self, number: int) -> None:
        for pid in self.tree_pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def wait(self, timeout: float = 30.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout} s:\n{self.log}") from None

    def stop(self, timeout: float = 30.0) -> int:
        self.signal(signal.SIGTERM)
        return self.wait(timeout)


class RunWorkers(Command):
    name = "runworkers"

    def worker_pids(self) -> list[int]:
        """Return the pids of the worker processes that are ready to claim."""
        rows = Worker.objects.using(self._alias).filter(supervisor_pid=self.pid)
        return sorted(rows.values_list("pid", flat=True))

    def wait_until_ready(self, workers: int = 1) -> list[int]:
        def ready() -> list[int]:
            self.assert_runs()
            pids = self.worker_pids()
            return pids if len(pids) >= workers else []

        return wait_for(ready, what="workers ready")


class RunScheduler(Command):
    name = "runscheduler"

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            self.assert_runs()
            return "Scheduler started" in self.log

        wait_for(ready, what="scheduler ready")


class Tree:
    """Starts `runworkers`, and `runscheduler`, on the jobs' database of the running test."""

    def __init__(self, alias: str, directory: Path) -> None:
        self.alias = alias
        self.directory = directory
        self._started: list[Command] = []

    def start(
        self, *options: str, settings: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> RunWorkers:
        return self._start(RunWorkers, options, settings, env)

    def start_scheduler(
        self, *options: str, settings: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> RunScheduler:
        return self._start(RunScheduler, options, settings, env)

    def _start(
        self, kind: type[C], options: Sequence[str], settings: dict[str, Any] | None, env: dict[str, str] | None
    ) -> C:
        log = self.directory / f"workers-{len(self._started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.command(kind.name, *options),
                env=self.environment({**SHORT_LEASE, **(settings or {})}) | (env or {}),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        found = kind(process, log, self.alias)
        self._started.append(found)
        return found

    def run(self, *arguments: str, settings: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a management command to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment({**SHORT_LEASE, **(settings or {})}),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def command(self, *arguments: str) -> Sequence[str]:
        return [sys.executable, "-W", "error::ResourceWarning", "-m", "django", *arguments]

    def environment(self, settings: dict[str, Any]) -> dict[str, str]:
        given = connections[self.alias].settings_dict
        database = {name: given[name] for name in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": str(ROOT),
            "DJANGO_JOBS_TEST_WITHOUT_SHOP": "1",
            "DJANGO_JOBS_TEST_DATABASES": json.dumps({"default": database}),
            "DJANGO_JOBS_TEST_SETTINGS": json.dumps(settings),
        }

    def forget(self, ended: Command) -> None:
        """Leave out at the end one whose processes are all gone: others may have their numbers by then."""
        self._started.remove(ended)

    def end_all(self) -> None:
        for found in self._started:
            for pid in reversed(found.tree_pids()):
                for kill in (os.killpg, os.kill):
                    try:
                        kill(pid, signal.SIGKILL)
                    except (ProcessLookupError, PermissionError):
                        pass
            found.process.wait()

    # What the jobs' table says.

    def jobs(self, **conditions: Any) -> list[Job]:
        return list(Job.objects.using(self.alias).filter(**conditions).order_by("id"))

    def count(self, **conditions: Any) -> int:
        return int(Job.objects.using(self.alias).filter(**conditions).count())

    def wait_for_status(self, job: Job, *statuses: str, timeout: float = 30.0) -> Job:
        def reached() -> bool:
            job.refresh()
            return job.status in statuses

        wait_for(reached, timeout, f"job {job.pk} {statuses}, it is {job.status}")
        return job
