"""One measurement of one peer: a fresh database, an empty directory for marks, and the peer's verbs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from benchmarks.compared import process
from benchmarks.compared.marks import Count, Marks
from benchmarks.compared.peer import ROOT, Peer, PeerError
from benchmarks.compared.servers import Servers

PATIENCE = 60.0


class Trial:
    def __init__(
        self, peer: Peer, python: Path, servers: Servers, jobs: int, *, handler: str = "nothing", keep: str = "",
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`keep` names a database that outlives the trial, to be found again by the next that names it."""
        self.peer = peer
        self.jobs = jobs
        self.found = False
        self.servers = servers
        self._keep = keep
        self._python = python
        self._given = {"HANDLER": handler, **(environment or {})}
        self._ends = contextlib.ExitStack()
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Trial:
        self.directory = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="django_jobs-trial-")))
        self.marks = Marks(self.directory, self.jobs)
        self.database = f"{self.peer.name}_{self._keep or 'trial'}"
        self.url = self.servers.postgres.url(self.database)
        if self.peer.broker == "redis":
            self.servers.redis.clear(self.peer.database)
        else:
            self._create()
            self.connection = self._ends.enter_context(psycopg.connect(self.url, autocommit=True))
        return self

    def __exit__(self, *_error: object) -> None:
        self._ends.close()

    def verb(self, verb: str, environment: dict[str, str] | None = None, **options: object) -> float:
        """Have the peer do something; return the seconds that it says it took, 0 when it says none."""
        done = subprocess.run(
            self._command(verb, options), env={**self._environment(), **(environment or {})}, cwd=ROOT,
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if done.returncode:
            raise PeerError(f"{verb} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        last = done.stdout.strip().rpartition("\n")[2]
        return float(last) if last else 0.0

    def fill(self, fill: int = 0) -> None:
        """Store all jobs of the trial, and leave the server nothing to catch up with."""
        self.verb("bulk", jobs=self.jobs, fill=fill)
        self.settle()

    def settle(self) -> None:
        if self.peer.broker == "postgresql":
            self.servers.postgres.settle(self.connection)

    @contextlib.contextmanager
    def worker(
        self, processes: int = 1, threads: int = 4, *, graceful: bool = False
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A tree of workers: killed when all is known, unless what it leaves behind is to be in order."""
        command = self._command("work", {"processes": processes, "threads": threads})
        with (self.directory / "worker.log").open("ab") as file:
            worker = subprocess.Popen(
                command, env=self._environment(), cwd=ROOT, stdout=file, stderr=file, start_new_session=True
            )
        self._worker = worker
        try:
            yield worker
        finally:
            self._worker = None
            process.end(worker, patience=30.0 if graceful else 0.0)

    def begun(self) -> None:
        """Wait until the first job has run or runs."""
        if not self.wait(lambda: self.marks.executed() > 0, PATIENCE):
            raise PeerError(f"no job ran within {PATIENCE:.0f} s: {self._said()}")

    def drained(self) -> float:
        """Wait until no job waits or runs; return the seconds since the first one ran. What does not run is counted as lost."""
        self.begun()
        patience = PATIENCE + 20 * self.jobs / self.peer.rate
        self.wait(lambda: self.marks.executed() >= self.jobs and not self.unfinished(), patience)
        return time.monotonic() - self.marks.first()

    def server_cpu(self) -> float:
        """Return the seconds of processor time that the server with the jobs took so far."""
        pid = self.servers.redis.pid if self.peer.broker == "redis" else self.servers.postgres.server.pid
        return process.cpu(pid)

    def wait(self, condition: Callable[[], bool], patience: float) -> bool:
        until = time.monotonic() + patience
        while not (holds := condition()) and time.monotonic() < until:
            if self._worker is not None and self._worker.poll() is not None:
                raise PeerError(f"the worker ended with {self._worker.returncode}: {self._said()}")
            time.sleep(0.01)
        return holds

    def unfinished(self) -> bool:
        if self.peer.broker == "redis":
            return self.servers.redis.count(self.peer.unfinished, self.peer.database) > 0
        row = self.connection.execute(self.peer.unfinished.encode()).fetchone()
        assert row is not None
        return bool(row[0])

    def _said(self) -> str:
        return (self.directory / "worker.log").read_text(errors="replace").strip()[-600:]

    def count(self) -> Count:
        return self.marks.count()

    def _create(self) -> None:
        """Copy a database in which the peer has made its tables: made once, by its own means."""
        postgres, template = self.servers.postgres, f"{self.peer.name}_empty"
        if not postgres.has(template):
            postgres.create(template)
            try:
                self.url = postgres.url(template)
                self.verb("setup")
            except BaseException:
                postgres.drop(template)
                raise
            finally:
                self.url = postgres.url(self.database)
        self.found = bool(self._keep) and postgres.has(self.database)
        if not self.found:
            postgres.create(self.database, template)
        if not self._keep:
            self._ends.callback(postgres.drop, self.database)

    def _command(self, verb: str, options: dict[str, object]) -> list[str]:
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [str(self._python), "-m", f"benchmarks.peers.{self.peer.name}", verb, *words]

    def _environment(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DJANGO", "PYTHON"))}
        redis = {"REDIS_URL": f"{self.servers.redis.url}/{self.peer.database}"} if self.peer.broker == "redis" else {}
        tally = {"TALLY": str(self.directory), "TALLY_JOBS": str(self.jobs), **self._given}
        return {**given, **redis, **tally, "DATABASE_URL": self.url, "PYTHONPATH": str(ROOT)}
