"""A NOTIFY that is sent behind the job it tells of, without waiting for the answer: in one go, and two transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connections, transaction
from psycopg.pq import PipelineStatus, TransactionStatus

from django_jobs import notify
from django_jobs.engines import postgresql_direct as direct
from django_jobs.engines.base import Engine
from tests.engines.common import beside_others, on_postgresql, sql
from tests.enqueues import jobs, take
from tests.harness import wait_for
from tests.listening import Heard, listening
from tests.test_enqueue_paths import settle
from tests.threads import Session

pytestmark = [beside_others, on_postgresql]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_window", notify._Window())
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 0.0)


@pytest.fixture
def heard(engine: Engine) -> Iterator[Heard]:
    settle(engine)
    with listening(engine) as found:
        yield found


def is_idle(engine: Engine) -> bool:
    pgconn: Any = connections[engine.alias].connection.pgconn
    return (pgconn.pipeline_status, pgconn.transaction_status) == (PipelineStatus.OFF, TransactionStatus.IDLE)


def test_a_job_and_what_tells_of_it_are_sent_in_one_go(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: list[str] = []
    monkeypatch.setattr(engine, "notify", apart.append)
    before = len(jobs(engine))
    take.enqueue(1)
    take.using(queue="mäil").enqueue(2)
    assert heard.so_far() == ["default", "mäil"]
    assert apart == []
    assert len(jobs(engine)) == before + 2
    assert is_idle(engine)


def test_in_a_transaction_it_is_told_after_the_commit(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        take.enqueue(1)
        assert heard.so_far() == []
    assert heard.so_far() == ["default"]


def test_within_the_window_nothing_is_sent_along(engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 1000.0)
    for number in range(3):
        take.enqueue(number)
    assert heard.so_far() == ["default"]


def test_a_job_that_is_refused_leaves_the_session_usable(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(jobs(engine))
    made = direct.prepared

    def refused(connection: Any, name: str, given: Any, *others: Any) -> Any:
        return made(connection, name, {**given, "priority": b"1000"}, *others)

    with monkeypatch.context() as patched:
        patched.setattr(direct, "prepared", refused)
        with pytest.raises(IntegrityError, match="django_jobs_numbers"):
            take.enqueue(1)
    assert is_idle(engine)
    take.enqueue(2)
    assert len(jobs(engine)) == before + 1


def test_what_cannot_be_told_is_stored_all_the_same_and_nothing_is_told_for_a_while(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(jobs(engine))
    with monkeypatch.context() as patched, caplog.at_level(logging.DEBUG, "django_jobs"):
        patched.setattr(direct, "NOTIFY", b"SELECT 1 / (length($1) * 0)")
        patched.setattr("django_jobs.log._failures_said", {})  # another test's may have been said within the minute
        take.enqueue(1)
    assert "division by zero" in caplog.text
    take.enqueue(2)
    assert heard.so_far() == []
    assert len(jobs(engine)) == before + 2
    assert is_idle(engine)


def test_a_session_that_was_ended_is_made_anew_for_the_next_job(
    engine: Engine, heard: Heard, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(jobs(engine))
    pid = sql(engine, "SELECT pg_backend_pid()")[0][0]
    made = direct.prepared

    def cut(*given: Any) -> Any:
        other.sql("SELECT pg_terminate_backend(%s)", pid)
        wait_for(lambda: other.sql("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == [(0,)])
        return made(*given)

    with monkeypatch.context() as patched:
        patched.setattr(direct, "prepared", cut)
        with pytest.raises(OperationalError):
            take.enqueue(1)
    take.enqueue(2)
    assert len(jobs(engine)) == before + 1
