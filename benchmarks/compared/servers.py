"""The servers that the peers keep their jobs in: a PostgreSQL and a Redis of our own, alike for all, both durable."""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from benchmarks.compared.peer import PeerError
from example_project.postgres import Server, free_port, temporary
from example_project.processes import spawn

# A small production server. Nothing that is asked to be durable is less than that.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "log_line_prefix": "%d ",  # the database: statements of idle workers are counted in the log
}
TABLES = """
SELECT string_agg(quote_ident(relname), ', ')
  FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


class Postgres:
    broker = "postgresql"

    def __init__(self) -> None:
        self.server: Server = temporary(settings=SETTINGS)
        self._admin = psycopg.connect(self.server.url, autocommit=True)

    def url(self, database: str) -> str:
        return self.server.url.rpartition("/")[0] + f"/{database}"

    def create(self, database: str, template: str = "template1") -> None:
        self.drop(database)
        self._admin.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')

    def has(self, database: str) -> bool:
        return self._admin.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone() is not None

    def drop(self, database: str) -> None:
        self._admin.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def settle(self, connection: psycopg.Connection) -> None:
        """Leave nothing to be caught up with: neither by autovacuum nor by a checkpoint."""
        tables = connection.execute(TABLES).fetchone()
        if tables and tables[0]:
            connection.execute(f"VACUUM ANALYZE {tables[0]}".encode())
        connection.execute("CHECKPOINT")

    def version(self) -> str:
        number = self._admin.info.server_version
        return f"PostgreSQL {number // 10000}.{number % 10000}"

    def stop(self) -> None:
        self._admin.close()
        self.server.stop("immediate")


class Redis:
    """With an append-only file, synced once a second (its documented default for durability), and never evicting:
    what Celery's and dramatiq's pages on Redis ask for."""

    broker = "redis"

    def __init__(self) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise PeerError("no redis-server on the PATH: install it (Debian: apt-get install redis-server)")
        self._directory = tempfile.TemporaryDirectory(prefix="django_jobs-redis-")
        self.port = free_port()
        options = {
            "port": self.port, "bind": "127.0.0.1", "dir": self._directory.name, "appendonly": "yes",
            "appendfsync": "everysec", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        log = (Path(self._directory.name) / "log").open("wb")
        self._process = spawn([binary, *words], at_our_end=signal.SIGTERM, stdout=log)
        self._wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def ask(self, command: str, database: int = 0) -> str:
        """Send one command, and return the first line of its answer, or the bulk that follows."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(f"SELECT {database}\r\n{command}\r\n".encode())
            with connection.makefile("rb") as answers:
                answers.readline()
                line = answers.readline().decode().strip()
                if line.startswith("$") and int(line[1:]) >= 0:
                    return answers.read(int(line[1:])).decode()
                return line

    def count(self, commands: str, database: int) -> int:
        """Return the sum of what commands (one a line) count."""
        return sum(int(self.ask(command, database).lstrip(":")) for command in commands.strip().splitlines())

    def clear(self, database: int) -> None:
        self.ask("FLUSHDB", database)

    def version(self) -> str:
        return "Redis " + self._info("redis_version")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._directory.cleanup()

    def _info(self, name: str) -> str:
        lines = dict(line.partition(":")[::2] for line in self.ask("INFO").splitlines())
        return lines[name]

    def _wait(self) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                if self.ask("PING") == "+PONG":
                    return
            except OSError:
                time.sleep(0.02)
        raise PeerError("redis-server did not get ready within 20 s")


class Servers:
    """Both, Redis started when it is first asked for."""

    def __init__(self) -> None:
        self.postgres = Postgres()
        self._redis: Redis | None = None

    @property
    def redis(self) -> Redis:
        if self._redis is None:
            self._redis = Redis()
        return self._redis

    def versions(self) -> str:
        redis = f", {self._redis.version()} (append-only file, synced every second)" if self._redis else ""
        return f"{self.postgres.version()} (fsync on){redis}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.postgres.stop()
        if self._redis is not None:
            self._redis.stop()
