"""Databases that a test may take away from the trees that it started, and what those say of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections

from example_project import postgres
from tests.harness import Command, Tree, wait_for
from tests.processes.common import lines, wait_seconds

# The alias of the own server of a test; the jobs are there.
ALIAS = "outage"
LEASE = {"LEASE": 1.5, "HEARTBEAT": 0.5, "SHUTDOWN_GRACE": 1}


class NetworkTree(Tree):
    """Starts `runworkers` that reach the jobs' database by another port than the test does."""

    def __init__(self, alias: str, directory: Path, port: int) -> None:
        super().__init__(alias, directory)
        self._port = port

    def environment(self, settings: dict[str, Any]) -> dict[str, str]:
        found = super().environment(settings)
        databases = json.loads(found["DJANGO_JOBS_TEST_DATABASES"])
        databases["default"]["PORT"] = str(self._port)
        return {**found, "DJANGO_JOBS_TEST_DATABASES": json.dumps(databases)}


@contextmanager
def down(server: postgres.Server, *processes: tuple[Command, str], seconds: float = 0.0) -> Iterator[None]:
    """Take the server away until all these processes have noticed, and for so long at least."""
    connections[ALIAS].close()
    begun = time.monotonic()
    server._end("immediate")
    try:
        for workers, process in processes:
            wait_for(lambda: process in away(workers), what=f"{process} notices")  # noqa: B023
        wait_seconds(begun + seconds - time.monotonic())
        yield
    finally:
        server._launch(server.port)
        wait_for(lambda: answers(server), what="the server is back")


def answers(server: postgres.Server) -> bool:
    try:
        with psycopg.connect(server.url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def away(workers: Command) -> list[str]:
    return [line.split()[3].rstrip(":") for line in lines(workers, "the jobs' database cannot be reached")]


def back(workers: Command) -> list[str]:
    return [line.split()[3].rstrip(":") for line in lines(workers, "the jobs' database is back")]


@contextmanager
def full(server: postgres.Server) -> Iterator[psycopg.Connection[Any]]:
    """Take all connections that the server has left; one of them may be used."""
    taken = []
    connections[ALIAS].close()
    try:
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(server.url, autocommit=True))
        yield taken[0]
    finally:
        for raw in taken:
            raw.close()


@contextmanager
def read_only(server: postgres.Server) -> Iterator[None]:
    """Let the server refuse every write, as one does that is no longer the first of its cluster."""
    _set_read_only(server, "on")
    try:
        yield
    finally:
        _set_read_only(server, "off")


def _set_read_only(server: postgres.Server, value: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as raw:
        raw.execute("SET default_transaction_read_only = off")
        raw.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        raw.execute("SELECT pg_reload_conf()")


def terminate_all(server: postgres.Server) -> int:
    """End all sessions of others; return how many there were."""
    with psycopg.connect(server.url, autocommit=True) as raw:
        found = raw.execute(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    return int(found[0]) if found else 0
