"""PgBouncer in transaction mode, as many projects have it between themselves and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest

from example_project.postgres import Server, free_port
from example_project.postgres_host import account_for, temporary_parent
from tests.harness import wait_for

CONFIG = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = {size}
server_login_retry = 1
admin_users = postgres
"""


def find_pgbouncer() -> Path:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        message = "PgBouncer is not installed (Debian's package: pgbouncer)"
        if os.environ.get("REQUIRE_PGBOUNCER"):
            pytest.fail(message)
        pytest.skip(message)
    return Path(found)


class Pooler:
    """A running PgBouncer. It lets everybody in, as the servers of the tests do."""

    def __init__(self, program: Path, server: Server, size: int = 8) -> None:
        self._account = account_for(Path("/nonexistent"))
        self._directory = Path(tempfile.mkdtemp(prefix="django_jobs-pooler-", dir=temporary_parent(self._account)))
        self._directory.chmod(0o755)
        self._program = program
        self._server = server
        self._size = size
        self.port = free_port()

    def __enter__(self) -> Self:
        config = self._directory / "pgbouncer.ini"
        # "any" logs everybody in as the one user who is named with the database.
        text = CONFIG.format(server=self._server.port, port=self.port, size=self._size)
        config.write_text(text.replace(f"port={self._server.port}", f"port={self._server.port} user=postgres"))
        with (self._directory / "pgbouncer.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.groups,
            )
        wait_for(self._listens, what="PgBouncer listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def settings_of_sessions(self) -> list[dict[str, str]]:
        """Return what each session of the server says that it was set to, as whoever gets it next will find it."""
        clients = []
        try:
            for _ in range(self._size):
                client = psycopg.connect(self.url)
                client.execute("SELECT 1")  # and the transaction stays open, so that the next has another session
                clients.append(client)
            return [
                dict(client.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'").fetchall())
                for client in clients
            ]
        finally:
            for client in clients:
                client.close()

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self._directory / "pgbouncer.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
