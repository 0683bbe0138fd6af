"""Enqueueing in a process that lives long and serves no requests, while its database fails in every way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, InternalError, OperationalError, connections, transaction

from django_jobs.models import Job
from example_project import postgres
from tests.app.jobs import nothing
from tests.harness import wait_for
from tests.processes.outages import ALIAS, down, full, read_only, terminate_all
from tests.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgresql]


@pytest.fixture(params=["without key", "keyed"])
def enqueue(request: pytest.FixtureRequest, server: postgres.Server) -> Callable[[], Job]:
    """Enqueue a job, each time another; a connection is there before."""
    numbers = iter(range(1000))

    def found() -> Job:
        number = next(numbers)
        return nothing.using(idempotency_key=f"key {number}" if request.param == "keyed" else None).enqueue(number)

    found()
    return found


def stored() -> int:
    return int(Job.objects.using(ALIAS).count())


def session_pid() -> int:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_after_a_restart_the_first_enqueue_works(server: postgres.Server, enqueue: Callable[[], Job]) -> None:
    for mode in ("immediate", "fast"):
        server.restart(mode)
        enqueue()
        enqueue()
    assert stored() == 5


def test_after_its_session_was_ended_the_first_enqueue_works(
    server: postgres.Server, enqueue: Callable[[], Job]
) -> None:
    assert terminate_all(server) == 1
    enqueue()
    assert stored() == 2


def test_while_the_database_is_away_each_enqueue_says_so_and_stores_nothing(
    server: postgres.Server, enqueue: Callable[[], Job]
) -> None:
    with down(server):
        for _ in range(3):
            with pytest.raises(OperationalError, match="efused"):
                enqueue()
    enqueue()
    assert stored() == 2


@pytest.mark.parametrize("server", [{"max_connections": "6"}], indirect=True)
def test_while_the_server_is_full_each_enqueue_says_so_and_stores_nothing(
    server: postgres.Server, enqueue: Callable[[], Job]
) -> None:
    with full(server):
        for _ in range(3):
            with pytest.raises(OperationalError, match="too many clients"):
                enqueue()
    enqueue()
    assert stored() == 2


def test_while_the_server_is_read_only_each_enqueue_says_so_and_the_session_stays(
    server: postgres.Server, enqueue: Callable[[], Job]
) -> None:
    pid = session_pid()
    with read_only(server):
        wait_for(lambda: not _works(enqueue), what="the session has heard of the change")
        already = stored()
        for _ in range(3):
            with pytest.raises(InternalError, match="read-only transaction"):
                enqueue()
    wait_for(lambda: _works(enqueue), what="the session has heard of the change")
    assert (stored(), session_pid()) == (already + 1, pid)


def _works(enqueue: Callable[[], Job]) -> bool:
    try:
        enqueue()
    except InternalError:
        return False
    return True


def test_while_the_name_is_not_resolved_each_enqueue_says_so_and_stores_nothing(
    server: postgres.Server, enqueue: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with monkeypatch.context() as patches:
        patches.setitem(connections[ALIAS].settings_dict, "HOST", "database.example.test")
        patches.setattr(socket, "getaddrinfo", resolve)
        terminate_all(server)
        for _ in range(3):
            with pytest.raises(OperationalError, match="resol"):
                enqueue()
    enqueue()
    assert stored() == 2


def test_in_a_transaction_an_enqueue_on_a_dead_session_fails_and_the_next_transaction_works(
    server: postgres.Server, enqueue: Callable[[], Job]
) -> None:
    def both() -> None:
        with transaction.atomic(using=ALIAS):
            enqueue()
            terminate_all(server)
            enqueue()

    with pytest.raises(OperationalError):
        both()
    with transaction.atomic(using=ALIAS):
        enqueue()
    assert stored() == 2


def test_a_transaction_that_was_begun_by_hand_is_left_alone(server: postgres.Server) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("BEGIN")
        with pytest.raises(DatabaseError):
            cursor.execute("SELECT no_such_column")
        with pytest.raises(InternalError, match="current transaction is aborted"):
            nothing.enqueue()
        cursor.execute("ROLLBACK")
        pid = session_pid()
        cursor.execute("BEGIN")
        nothing.enqueue()
        cursor.execute("ROLLBACK")
    assert (stored(), session_pid()) == (0, pid)


def test_what_the_server_says_unasked_closes_no_session_that_works(server: postgres.Server) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("LISTEN news")
    pid = session_pid()
    with transaction.atomic(using=ALIAS), connections[ALIAS].cursor() as cursor:
        cursor.execute("NOTIFY news")
    nothing.enqueue()
    assert session_pid() == pid


@pytest.fixture
def proxied(server: postgres.Server, proxy: Proxy) -> Iterator[Proxy]:
    """A proxy in front of the jobs' database."""
    connections[ALIAS].close()
    connections[ALIAS].settings_dict["PORT"] = str(proxy.port)
    yield proxy
    connections[ALIAS].settings_dict["PORT"] = str(server.port)


def test_an_enqueue_whose_answer_was_lost_says_so_and_is_not_repeated(proxied: Proxy) -> None:
    nothing.enqueue(0)
    watcher = threading.Thread(target=_cut_when_swallowed, args=(proxied,))
    watcher.start()
    with proxied.swallow(b"INSERT INTO django_jobs_job"), pytest.raises(OperationalError):
        nothing.enqueue(1)
    watcher.join()
    assert stored() == 2  # also what is no enqueue works again
    nothing.enqueue(2)
    assert [job.args for job in Job.objects.using(ALIAS).order_by("id")] == [[0], [1], [2]]


def _cut_when_swallowed(proxy: Proxy) -> None:
    wait_for(lambda: proxy.swallowed)
    # The server is given time to store it: what is asked afterwards shows whether it has.
    while not _one_more(proxy):
        pass
    proxy.cut()


def _one_more(proxy: Proxy) -> bool:
    try:
        return stored() == 2
    finally:
        connections[ALIAS].close()
