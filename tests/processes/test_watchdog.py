"""The limit on our own side for a statement of ours: through a proxy that keeps the answer back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_jobs.engines.base import Engine
from django_jobs.engines.postgresql import PostgreSQLEngine
from django_jobs.workers.connections import answer_timeout, connect_timeout, statement_timeout
from django_jobs.workers.heart import Heart
from django_jobs.workers.watchdog import NoAnswer, Watchdog, watchdog
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import Tables
from tests.proxy import COMMIT, Proxy

pytestmark = pytest.mark.postgresql
ALIAS = "behind"
LIMIT = 1.5


@pytest.fixture
def proxy(django_db_setup: None, django_db_blocker: Any) -> Iterator[Proxy]:
    """A proxy in front of the server of the session, whose database is there by an alias of its own."""
    with django_db_blocker.unblock():
        yield from _proxied()


def _proxied() -> Iterator[Proxy]:
    direct = connections["default"].settings_dict
    with Proxy((direct["HOST"] or "127.0.0.1", int(direct["PORT"] or 5432))) as found:
        connections.settings[ALIAS] = {**direct, "HOST": "127.0.0.1", "PORT": str(found.port)}
        watchdog.start()
        try:
            yield found
        finally:
            watchdog.end()
            connections[ALIAS].close()
            del connections.settings[ALIAS]
            del connections[ALIAS]


def ask(statement: str = "SELECT 'here'") -> Any:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


@contextmanager
def no_answer() -> Iterator[None]:
    begun = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer came in time"):
        yield
    assert LIMIT - 0.6 <= time.monotonic() - begun < LIMIT + 3


def test_a_statement_whose_answer_never_comes_fails_as_by_a_broken_connection(proxy: Proxy) -> None:
    ask()
    with no_answer(), proxy.swallow(b"here"), watchdog.guarded(ALIAS, LIMIT):
        ask()
    assert not connections[ALIAS].is_usable()
    connections[ALIAS].close()
    with watchdog.guarded(ALIAS, LIMIT):
        assert ask() == "here"


def test_a_commit_whose_answer_never_comes_fails_so_too(proxy: Proxy) -> None:
    ask()
    with no_answer(), proxy.swallow(COMMIT), watchdog.guarded(ALIAS, LIMIT), transaction.atomic(using=ALIAS):
        ask()
    assert proxy.swallowed
    assert ask() == "here"  # on a new connection


def test_a_connection_that_is_made_and_then_not_spoken_to_fails_so_too(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections[ALIAS].settings_dict["OPTIONS"], "options", "-c TimeZone=Asia/Tokyo")
    with no_answer(), proxy.swallow(b"TimeZone'"), watchdog.guarded(ALIAS, LIMIT):
        ask()
    assert proxy.swallowed


def test_many_statements_that_are_answered_may_take_as_long_as_they_like_together(proxy: Proxy) -> None:
    with watchdog.guarded(ALIAS, LIMIT):
        for _ in range(6):
            assert ask("SELECT pg_sleep(0.5)::text || 'here'") == "here"
        pid = ask("SELECT pg_backend_pid()")
    time.sleep(2 * LIMIT)  # idle is nobody's hurry
    assert ask("SELECT pg_backend_pid()") == pid


def test_only_the_connection_that_waits_is_cut(proxy: Proxy) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        before = cursor.fetchone()[0]
        ask()
        with no_answer(), proxy.swallow(b"here"), watchdog.guarded(ALIAS, LIMIT):
            ask()
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] == before
    connections["default"].close()


def test_an_error_of_the_statement_stays_what_it_is(proxy: Proxy) -> None:
    with pytest.raises(OperationalError) as caught, watchdog.guarded(ALIAS, LIMIT):
        ask("SET statement_timeout = 50; SELECT pg_sleep(1)")
    assert not isinstance(caught.value, NoAnswer)


def test_time_in_which_the_process_was_frozen_does_not_count(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    ask()
    now = time.monotonic
    with watchdog.guarded(ALIAS, 60.0):
        monkeypatch.setattr(time, "monotonic", lambda: now() + 3600)
        assert ask("SELECT pg_sleep(1.2)::text || 'here'") == "here"


def test_an_answer_that_nobody_needs_any_more_is_waited_for_a_short_time_only(proxy: Proxy) -> None:
    ask()
    begun = time.monotonic()
    with pytest.raises(NoAnswer), proxy.swallow(b"here"), watchdog.guarded(ALIAS, 60.0, lambda: True):
        ask()
    assert time.monotonic() - begun < 5


@with_tables
@on_postgresql
def test_a_heart_that_ended_leaves_no_thread_that_a_fork_would_copy(engine: Engine) -> None:
    tables = Tables(engine)
    heart = Heart(engine, tables.plan, tables.pulse, tables.rescuer, tables.outage)
    watchdog.end()  # of another test
    for _ in range(2):
        before = set(threading.enumerate())
        heart.start()
        assert heart.ready.wait(10)
        ours = set(threading.enumerate()) - before
        assert {thread.name for thread in ours} == {"django_jobs-heart", "django_jobs-watchdog"}
        assert heart.end(10)
        assert not any(thread.is_alive() for thread in ours)


def test_an_ended_watchdog_can_be_started_again() -> None:
    found = Watchdog()
    for _ in range(2):
        found.start()
        assert found._thread.is_alive()
        found.end()
        assert not found._thread.is_alive()


def test_a_probe_of_a_database_that_lets_us_in_and_does_not_answer_ends(proxy: Proxy) -> None:
    engine = PostgreSQLEngine(ALIAS)
    assert engine.probe(timeout=2)
    begun = time.monotonic()
    with proxy.swallow(b"transaction_read_only"):
        assert not engine.probe(timeout=2)
    assert 1.9 <= time.monotonic() - begun < 5
    assert engine.probe(timeout=2)
    assert engine.was_away_since(begun)
    assert not engine.was_away_since(time.monotonic())


@pytest.mark.parametrize("lease", [1.5, 3.0, 30.0, 3600.0])
def test_whatever_the_lease_no_wait_of_ours_is_longer_than_ten_seconds(lease: float) -> None:
    assert statement_timeout(lease) + 1 <= answer_timeout(lease) < 10
    assert connect_timeout(lease) <= 5
    assert statement_timeout(lease) <= lease / 3
