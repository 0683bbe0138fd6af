"""A job is part of the transaction in which it was enqueued: with workers waiting for it, in requests, in test cases."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import IntegrityError, connections, transaction
from django.test import RequestFactory, TestCase, override_settings

from django_jobs.engines import engine as engine_of
from django_jobs.models import Job
from tests.app.jobs import leave_effect, nothing
from tests.app.models import Effect
from tests.engines.common import alone, beside_others, claim, on_postgresql
from tests.enqueues import jobs, keyed, take
from tests.processes.common import effects, with_tables
from tests.threads import Session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from tests.harness import Tree


# On SQLite nobody else could commit meanwhile.
@on_postgresql
@pytest.mark.process
@with_tables
def test_workers_run_a_job_when_its_transaction_is_committed_and_never_one_that_was_rolled_back(
    tree: Tree, other: Session
) -> None:
    def workers_have_looked(key: str) -> None:
        tree.wait_for_status(other.do(lambda: leave_effect.enqueue(key)), "done")

    tree.start().wait_until_ready()
    with transaction.atomic(using=tree.alias):
        kept = [leave_effect.using(priority=9).enqueue("kept").pk]
        kept += leave_effect.enqueue_many([leave_effect.using(priority=9).call("kept")])
        with transaction.atomic(using=tree.alias):
            leave_effect.using(priority=9).enqueue("savepoint")
            leave_effect.enqueue_many([leave_effect.using(priority=9).call("savepoint")])
            transaction.set_rollback(True, using=tree.alias)
        workers_have_looked("first")
        assert effects(tree) == [("first", 1)]
    for pk in kept:
        tree.wait_for_status(Job.objects.using(tree.alias).get(pk=pk), "done")
    with transaction.atomic(using=tree.alias):
        leave_effect.using(priority=9).enqueue("rolled back")
        transaction.set_rollback(True, using=tree.alias)
    workers_have_looked("second")
    assert effects(tree) == [("first", 1), ("kept", 1), ("kept", 1), ("second", 1)]
    assert tree.count() == 4


def enqueue_and_fail(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        keyed.enqueue(1)
        Effect.objects.using(engine.alias).create(key=None)  # type: ignore[misc]


@alone
def test_a_constraint_of_the_callers_own_that_fails_in_a_savepoint_costs_no_job(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        first = nothing.enqueue(1)
        with pytest.raises(IntegrityError):
            enqueue_and_fail(engine)
        second = keyed.enqueue(2)
    assert jobs(engine) == [first, second]


def connected(engine: Engine) -> int:
    """Return how many sessions others than this one have on PostgreSQL."""
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


def started(*given: Any) -> Any:
    """Stand in for a server's `start_response`."""


@beside_others
def test_of_many_requests_those_that_succeed_leave_their_jobs_and_none_leaves_a_connection(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", alias == engine.alias)
    number = 400 if engine.name == "postgresql" else 200
    before = connected(engine) if engine.name == "postgresql" else 0

    def request(given: int) -> int:
        response: Any = handler(RequestFactory().get(f"/order/{given}").environ, started)
        response.close()  # as a server does: the request is finished
        assert all(connection.connection is None for connection in connections.all(initialized_only=True))
        return int(response.status_code)

    with (
        override_settings(ROOT_URLCONF="tests.request_urls", MIDDLEWARE=[]),
        caplog.at_level(logging.CRITICAL, "django.request"),
        ThreadPoolExecutor(8) as pool,
    ):
        handler = WSGIHandler()
        statuses = list(pool.map(request, range(number)))
    stored = [given for given in range(number) if given % 3]
    assert [given for given, status in enumerate(statuses) if status == 200] == stored
    assert sorted(job.args[0] for job in jobs(engine)) == sorted(stored * 2)
    assert sorted(Effect.objects.using(engine.alias).values_list("run", flat=True)) == stored
    if engine.name == "postgresql":
        assert connected(engine) == before


class JobsInTestCases(TestCase):
    """Twice the same, so that what the first leaves would be found by the second."""

    def enqueue_and_claim(self) -> None:
        assert not Job.objects.exists()
        with self.captureOnCommitCallbacks() as callbacks, transaction.atomic():
            ids: list[Any] = [keyed.enqueue(1).pk, keyed.enqueue(1).pk]
            ids += take.enqueue_many([keyed.call(1), take.call(2)])
        assert callbacks == []
        raw = connections["default"].connection
        claimed = claim(engine_of(), 9, types=(take.name,))
        assert [job.id for job in claimed] == [ids[0], ids[3]] == [ids[1], ids[3]] == [ids[2], ids[3]]
        assert connections["default"].connection is raw

    def test_jobs_are_enqueued_and_claimed_inside_a_test_case(self) -> None:
        self.enqueue_and_claim()

    def test_jobs_of_one_test_are_not_there_in_the_next(self) -> None:
        self.enqueue_and_claim()
