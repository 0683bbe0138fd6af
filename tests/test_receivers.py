"""What receivers of signals may do to the transactions of those who call them: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.dispatch import Signal

from django_jobs import job, signals
from django_jobs.alerts import channels
from django_jobs.engines.base import Engine
from django_jobs.engines.idle import in_transaction
from django_jobs.models import Alert, Job
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.atomic.common import Case
from tests.processes.common import on_postgresql, on_sqlite, with_tables

pytestmark = with_tables


@contextmanager
def connected(signal: Signal, does: Callable[[], Any]) -> Iterator[None]:
    def receive(**kwargs: Any) -> None:
        does()

    signal.connect(receiver=receive)
    try:
        yield
    finally:
        signal.disconnect(receive)


def sql(alias: str, statement: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)


def leave_block(alias: str) -> None:
    transaction.atomic(using=alias).__enter__()
    Effect.objects.using(alias).create(key="left", run=1, pid=1)


def leave_raw(alias: str) -> None:
    sql(alias, "BEGIN")
    Effect.objects.using(alias).create(key="left", run=1, pid=1)


def leave_without_autocommit(alias: str) -> None:
    transaction.set_autocommit(False, using=alias)
    leave_block(alias)


def break_quietly(alias: str) -> None:
    with suppress(DatabaseError):
        sql(alias, "SELECT * FROM nowhere")


LEFT = "A receiver of job_enqueued left a transaction open on the database '{}'; it is rolled back"


@pytest.mark.parametrize("leave", [leave_block, leave_raw, leave_without_autocommit])
def test_what_a_receiver_leaves_open_is_rolled_back_and_the_job_stays(
    engine: Engine, caplog: pytest.LogCaptureFixture, leave: Callable[[str], None]
) -> None:
    with connected(signals.job_enqueued, lambda: leave(engine.alias)):
        nothing.enqueue(1)
    assert LEFT.format(engine.alias) in caplog.text
    assert not in_transaction(engine.connection)
    assert transaction.get_autocommit(using=engine.alias)
    engine.connection.close()
    assert Job.objects.using(engine.alias).count() == 1
    assert not Effect.objects.using(engine.alias).exists()


def test_a_block_that_a_receiver_leaves_open_in_the_callers_transaction_is_rolled_back_alone(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(signals.job_enqueued, lambda: leave_block(engine.alias)), transaction.atomic(using=engine.alias):
        Effect.objects.using(engine.alias).create(key="the caller's", run=1, pid=1)
        nothing.enqueue(1)
        nothing.enqueue_many([nothing.call(2)])
    assert caplog.text.count(LEFT.format(engine.alias)) == 2
    assert Job.objects.using(engine.alias).count() == 2
    assert [effect.key for effect in Effect.objects.using(engine.alias)] == ["the caller's"]


@on_postgresql
@pytest.mark.parametrize("begin", ["BEGIN", "autocommit off"])
def test_a_receivers_failure_leaves_also_a_transaction_that_django_did_not_begin(engine: Engine, begin: str) -> None:
    if begin == "BEGIN":
        sql(engine.alias, "BEGIN")
    else:
        transaction.set_autocommit(False, using=engine.alias)
    with connected(signals.job_enqueued, lambda: break_quietly(engine.alias)):
        nothing.enqueue(1)
    sql(engine.alias, "COMMIT")
    if begin != "BEGIN":
        transaction.set_autocommit(True, using=engine.alias)
    assert not in_transaction(engine.connection)
    assert Job.objects.using(engine.alias).count() == 1


@on_sqlite
def test_a_receivers_failure_leaves_the_callers_transaction_on_another_database(engine: Engine) -> None:
    with transaction.atomic(using="default"), transaction.atomic(using=engine.alias):
        with connected(signals.job_enqueued, lambda: break_quietly("default")):
            nothing.enqueue(1)
        sql("default", "SELECT 1")
    assert Job.objects.using(engine.alias).count() == 1


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_who_enqueues_is_told_that_a_receiver_has_ended_its_transaction(engine: Engine, end: str) -> None:
    told = pytest.raises(TransactionManagementError, match="A receiver of job_enqueued ended the transaction")
    with connected(signals.job_enqueued, lambda: sql(engine.alias, end)), told, transaction.atomic(using=engine.alias):
        nothing.enqueue(1)
    assert not in_transaction(engine.connection)


@job(atomic=True)
def enqueue_nothing() -> None:
    nothing.enqueue(1)


@on_postgresql
def test_what_an_atomic_run_refuses_to_a_receiver_is_no_fault_of_the_run(engine: Engine) -> None:
    done = [lambda: Effect.objects.using("lite").create(key="a", run=1, pid=1), lambda: sql(engine.alias, "COMMIT")]
    for does in (*done, lambda: leave_block(engine.alias), lambda: break_quietly(engine.alias)):
        with connected(signals.job_enqueued, does):
            case = Case(engine, enqueue_nothing)
            assert case.run().came_to == ("done", 0, 0, [])
        Job.objects.using(engine.alias).all().delete()


@pytest.mark.parametrize("leave", [leave_block, leave_raw, leave_without_autocommit])
def test_who_is_told_of_an_alert_leaves_nothing_open(
    engine: Engine, leave: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    alert = Alert(kind=Alert.Kind.DEAD_LETTERS, value=2.0, limit=1.0, to_tell=[["raised", "signal", 2.0]])
    with connected(signals.alert_raised, lambda: leave(engine.alias)):
        channels.tell(alert)
    assert not in_transaction(engine.connection)
    assert "Telling an alert by signal left a transaction open" in caplog.text
