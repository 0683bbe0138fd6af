"""Statements that go past Django's cursors: who would see them still does, and a connection is never met while it is busy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.signals import post_init
from psycopg.pq import TransactionStatus

from django_jobs import InvalidJob
from django_jobs.engines import postgresql_direct as direct
from django_jobs.models import Job
from django_jobs.queue import arguments, many_checked
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others, on_postgresql, sql
from tests.enqueues import jobs, take
from tests.test_enqueue_paths import settle

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

KEPT = "SELECT count(*) FROM pg_prepared_statements WHERE starts_with(name, 'django_jobs')"


class Asking(dict[str, int]):
    """A value that asks the database for what is in it."""

    engine: Engine

    def items(self) -> Any:
        return [("found", *row) for row in sql(self.engine, "SELECT 1")]


@beside_others
@on_postgresql
def test_a_session_that_keeps_the_statement_sends_it_past_the_cursors(engine: Engine) -> None:
    settle(engine)
    take.enqueue(1)
    assert sql(engine, KEPT) == [(1,)]


@beside_others
@on_postgresql
@pytest.mark.parametrize("name", ["execute", "cursor"])
def test_a_tool_that_puts_itself_in_the_place_of_djangos_functions_sees_what_stores_jobs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen = []
    owner = CursorWrapper if name == "execute" else type(connections[engine.alias])
    before = getattr(owner, name)

    def watch(self: Any, *given: Any) -> Any:
        seen.append(given)
        return before(self, *given)

    settle(engine)
    monkeypatch.setattr(owner, name, watch)
    take.enqueue(1)
    assert len(seen) == 1
    take.enqueue_many([take.call(1), take.call(2)])
    assert len(seen) >= 2


@beside_others
@on_postgresql
def test_what_a_rollback_has_the_session_forget_is_kept_anew_also_inside_a_transaction(engine: Engine) -> None:
    settle(engine)
    with transaction.atomic(using=engine.alias):
        sql(engine, "SELECT 1")
        take.enqueue(1)
        transaction.set_rollback(True, using=engine.alias)
    assert sql(engine, KEPT) == [(0,)]
    with transaction.atomic(using=engine.alias):
        sql(engine, "SELECT 1")
        made = [take.enqueue(2), take.enqueue(3)]
    assert jobs(engine) == made
    assert sql(engine, KEPT) == [(1,)]


@beside_others
@on_postgresql
def test_a_connection_whose_transaction_is_broken_refuses_as_django_does(engine: Engine) -> None:
    settle(engine)
    with transaction.atomic(using=engine.alias):
        sql(engine, "SELECT 1")
        transaction.set_rollback(True, using=engine.alias)
        with pytest.raises(transaction.TransactionManagementError):
            take.enqueue(1)
    assert jobs(engine) == []


@alone
def test_receivers_of_the_models_signals_hear_of_a_job_that_was_stored(engine: Engine) -> None:
    heard: list[Any] = []

    def hear(instance: Any, **others: Any) -> None:
        heard.append(instance.pk)

    settle(engine)
    post_init.connect(hear, sender=Job)
    try:
        made = take.enqueue(1)
    finally:
        post_init.disconnect(hear, sender=Job)
    assert heard == [made.pk]


@beside_others
@on_postgresql
def test_calls_are_checked_while_those_before_them_are_stored(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = []
    check = arguments.plain_payload

    def watched(*given: Any) -> Any:
        raw: Any = connections[engine.alias].connection
        busy.append(raw.pgconn.transaction_status == TransactionStatus.ACTIVE)
        return check(*given)

    monkeypatch.setattr(many_checked, "plain_payload", watched)
    take.enqueue_many([take.call(number) for number in range(3_000)])
    # The first statement is sent with the BEGIN, the last when all is checked.
    assert (any(busy[:2_000]), busy[2_000]) == (False, True)
    assert len(jobs(engine)) == 3_000


@beside_others
def test_a_generator_may_use_the_connection_at_every_call(engine: Engine) -> None:
    def calls() -> Iterator[Any]:
        for number in range(2_500):
            assert sql(engine, "SELECT 1") == [(1,)]
            yield take.call(number)

    ids = take.enqueue_many(calls())
    assert [job.args for job in jobs(engine)] == [[number] for number in range(2_500)]
    assert [job.pk for job in jobs(engine)] == ids


@beside_others
def test_a_value_may_use_the_connection_while_it_is_looked_at(engine: Engine) -> None:
    asking = Asking(found=1)
    asking.engine = engine
    calls = [take.call(number) for number in range(3_000)]
    calls[2_500] = take.call(asking)
    take.enqueue_many(calls)
    assert len(jobs(engine)) == 3_000


@beside_others
def test_a_call_that_is_refused_while_others_are_under_way_leaves_the_connection_usable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job_type: Any, args: Any, *others: Any) -> Any:
        if args == (2_500,):
            raise InvalidJob("refused")
        return check(job_type, args, *others)

    check = arguments.plain_payload
    monkeypatch.setattr(many_checked, "plain_payload", refuse)
    with transaction.atomic(using=engine.alias):
        before = nothing.enqueue(1)
        with pytest.raises(InvalidJob, match="refused"):
            take.enqueue_many([take.call(number) for number in range(3_000)])
        after = nothing.enqueue(2)
    assert jobs(engine) == [before, after]


def test_a_function_of_another_file_is_no_longer_djangos() -> None:
    assert direct._are_as_made(CursorWrapper.execute)
    assert not direct._are_as_made(CursorWrapper.execute, settle)
