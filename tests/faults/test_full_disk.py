"""A disk that is full under the jobs' database: waited out, and said by `jobs status` in the database's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environ
import psycopg
import pytest
from django.core.management import call_command
from django.db import connections

from django_jobs import engines
from django_jobs.engines import engine as engine_of
from django_jobs.engines.postgresql import PostgreSQLEngine
from example_project import postgres
from tests import router
from tests.app.jobs import leave_effect, nothing
from tests.faults.disks import Disk, small_disk
from tests.faults.invariants import assert_invariants
from tests.harness import Tree, wait_for
from tests.processes.common import effects, lines, state, wait_seconds
from tests.processes.outages import ALIAS, answers, away, back, read_only

pytestmark = [pytest.mark.process, pytest.mark.postgresql]
LEASE = {"LEASE": 3, "HEARTBEAT": 1}
SAID = {"postgresql": "No space left on device", "sqlite": "database or disk is full"}
KEY = "x" * 150 + "{}"


@pytest.fixture(params=["postgresql", "sqlite"])
def on_small_disk(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_setup: None, django_db_blocker: Any
) -> Iterator[tuple[str, Disk, Tree]]:
    """The jobs' database on a disk of its own: a tablespace, or a file."""
    make = {"postgresql": _tablespace, "sqlite": _file}[request.param]
    with (
        django_db_blocker.unblock(),
        small_disk(32) as disk,
        make(disk) as settings,
        _jobs_on(settings, tmp_path) as tree,
    ):
        yield request.param, disk, tree


@contextmanager
def _jobs_on(settings: dict[str, Any], directory: Path) -> Iterator[Tree]:
    connections.settings[ALIAS] = settings
    router.jobs_alias = ALIAS
    engines._engine.cache_clear()  # the alias is of another vendor than in another test
    tree = Tree(ALIAS, directory)
    try:
        call_command("migrate", database=ALIAS, run_syncdb=True, verbosity=0)
        yield tree
    finally:
        tree.end_all()
        router.jobs_alias = "default"
        connections[ALIAS].close()
        del connections.settings[ALIAS]
        del connections[ALIAS]
        engines._engine.cache_clear()


@contextmanager
def _tablespace(disk: Disk) -> Iterator[dict[str, Any]]:
    with postgres.temporary() as server:
        with psycopg.connect(server.url, autocommit=True) as raw:
            raw.execute(f"CREATE TABLESPACE small LOCATION '{disk.path}'")
            raw.execute("CREATE DATABASE jobs TABLESPACE small")
        yield {**connections.settings["default"], **_address(server), "NAME": "jobs"}


def _address(server: postgres.Server) -> dict[str, Any]:
    return dict(environ.Env.db_url_config(server.url))


@contextmanager
def _file(disk: Disk) -> Iterator[dict[str, Any]]:
    yield {**connections.settings["lite"], "NAME": str(disk.path / "jobs.sqlite3")}


def test_a_full_disk_is_waited_out_and_charges_nothing(on_small_disk: tuple[str, Disk, Tree]) -> None:
    vendor, disk, tree = on_small_disk
    workers = tree.start("--threads", "2", settings=LEASE)
    pids = workers.wait_until_ready()
    tree.wait_for_status(nothing.enqueue(), "done")
    assert _status(tree)["cannot_be_written"] is None
    jobs = [leave_effect.using(delay=1 + number / 50).enqueue(KEY.format(number)) for number in range(200)]
    with disk.full():
        wait_for(lambda: away(workers), what="the workers notice")
        assert not engine_of(ALIAS).probe(timeout=5)
        assert SAID[vendor] in _status(tree)["cannot_be_written"]
        (line,) = [line for line in tree.run("jobs", "status").stdout.splitlines() if SAID[vendor] in line]
        assert line.startswith("It cannot be written, so no job runs until it can: ")
        wait_seconds(2 * LEASE["LEASE"])
        assert len(back(workers)) < len(away(workers))
        assert tree.count(status="done") < 200
    for job in jobs:
        tree.wait_for_status(job, "done")
    assert [state(job) for job in tree.jobs(attempts__gt=0)] == []
    assert {key for key, _ in effects(tree)} == {KEY.format(number) for number in range(200)}
    wait_for(lambda: sorted(away(workers)) == sorted(back(workers)), what="it is back for all")
    assert _status(tree)["cannot_be_written"] is None
    assert workers.worker_pids() == pids
    assert not lines(workers, "could not be stored")
    if vendor == "postgresql":
        assert_invariants(tree)
    assert workers.stop() == 0


def test_a_role_that_may_make_no_temporary_table_is_asked_whether_it_may_write(server: postgres.Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as raw:
        raw.execute("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC; CREATE ROLE poor LOGIN")
    connections.settings["poor"] = {**connections.settings[ALIAS], "USER": "poor"}
    try:
        poor = PostgreSQLEngine("poor")
        assert (poor.why_not_writable(2), poor.probe(2)) == (None, True)
        with read_only(server):
            wait_for(lambda: poor.why_not_writable(2) == "it is read-only (transaction_read_only is on)")
            assert not poor.probe(2)
    finally:
        del connections.settings["poor"]


def test_a_server_that_stops_for_want_of_room_for_its_log_is_an_outage(
    tmp_path: Path, django_db_setup: None, django_db_blocker: Any
) -> None:
    bindir = postgres.find_binaries()
    assert bindir is not None
    with django_db_blocker.unblock(), small_disk(160) as disk:
        sizes = {"min_wal_size": "32MB", "max_wal_size": "32MB"}
        server = postgres.Server.start(disk.path / "data", bindir=bindir, fsync=False, settings=sizes)
        try:
            with _jobs_on({**connections.settings["default"], **_address(server)}, tmp_path) as tree:
                _crash_for_want_of_room(server, disk, tree)
        finally:
            server.stop("immediate")


def _crash_for_want_of_room(server: postgres.Server, disk: Disk, tree: Tree) -> None:
    workers = tree.start("--threads", "2", settings=LEASE)
    workers.wait_until_ready()
    jobs = [leave_effect.using(delay=1 + number / 50).enqueue(KEY.format(number)) for number in range(200)]
    connections[ALIAS].close()
    with disk.full():
        with pytest.raises(psycopg.OperationalError):
            _use_up_log(server, disk)
        assert "No space left on device" in server.log.read_text()
        wait_for(lambda: "supervisor" in away(workers) and away(workers).count("worker"), what="both notice")
        wait_seconds(2 * LEASE["LEASE"])
    if server._process is not None and server._process.poll() is not None:
        server._launch(server.port)
    wait_for(lambda: answers(server), what="the server is back")
    for job in jobs:
        tree.wait_for_status(job, "done")
    assert [state(job) for job in tree.jobs(attempts__gt=0)] == []
    assert {key for key, _ in effects(tree)} == {KEY.format(number) for number in range(200)}
    assert_invariants(tree)
    assert workers.stop() == 0


def _use_up_log(server: postgres.Server, disk: Disk) -> None:
    with psycopg.connect(server.url, autocommit=True) as raw:
        for _ in range(50):
            disk.fill()
            raw.execute("SELECT txid_current(), pg_switch_wal()")


def _status(tree: Tree) -> dict[str, Any]:
    found = tree.run("jobs", "status", "--json")
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))
