"""Two transactions that want the same key at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_jobs import EffectTimeout, EnqueueTimeout, once
from django_jobs.engines.base import Engine
from tests.effects.common import effect_once, leave, truth
from tests.processes.common import on_postgresql, on_sqlite
from tests.threads import Session, together, wait_for_blocked

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def short(settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ENQUEUE_TIMEOUT": 0.2}


def test_of_many_at_once_one_is_first_and_all_others_read_its_result(engine: Engine) -> None:
    calls = [lambda number=number: effect_once(engine, "a", number) for number in range(6)]
    found = together(calls)
    (winner,) = [result for first, result in found if first]
    assert [result for _, result in found] == [winner] * 6
    assert truth(engine) == ["a"]


@on_postgresql
@pytest.mark.parametrize(
    ("end", "found"),
    [(Session.commit, (False, "the holder's")), (Session.rollback, (True, "the waiter's"))],
    ids=["commits", "rolls back"],
)
def test_who_waited_reads_the_result_of_a_holder_that_commits_and_is_first_after_one_that_rolls_back(
    engine: Engine, other: Session, end: Callable[[Session], None], found: tuple[bool, str]
) -> None:
    other.begin()
    other.do(lambda: effect_once(engine, "a", "the holder's"))
    with_session = Session(engine.alias)
    try:
        waiter = with_session.start(lambda: effect_once(engine, "a", "the waiter's"))
        wait_for_blocked()
        end(other)
        assert waiter.result(10) == found
    finally:
        with_session.close()
    assert truth(engine) == ["a"]


@on_postgresql
@pytest.mark.usefixtures("short")
def test_the_wait_is_bounded_names_the_key_and_leaves_the_callers_transaction_usable(
    engine: Engine, other: Session
) -> None:
    other.begin()
    other.do(lambda: effect_once(engine, "the key"))
    with transaction.atomic(using=engine.alias):
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '7s'")
        leave(engine, "before")
        with pytest.raises(EffectTimeout, match=r"'the key' of once\(\) and did not end within 0.2 s"), once("the key"):
            leave(engine, "never")
        leave(engine, "after")
        with once("another"):
            leave(engine, "another")
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("7s",)
    assert issubclass(EffectTimeout, EnqueueTimeout)
    assert truth(engine) == ["before", "after", "another"]


@on_sqlite
@pytest.mark.usefixtures("short")
def test_on_sqlite_the_wait_for_the_writer_is_bounded_where_the_transaction_has_only_read(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.begin()
    other.do(lambda: effect_once(engine, "another key"))
    connections[engine.alias].ensure_connection()
    monkeypatch.setattr(connections[engine.alias], "transaction_mode", "DEFERRED")
    with pytest.raises(EffectTimeout, match="'the key'"), transaction.atomic(using=engine.alias), once("the key"):
        leave(engine, "never")


@on_postgresql
def test_in_repeatable_read_a_key_committed_after_the_snapshot_is_the_databases_own_error(
    engine: Engine, other: Session
) -> None:
    def too_late() -> None:
        with transaction.atomic(using=engine.alias):
            with connections[engine.alias].cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            truth(engine)
            other.do(lambda: effect_once(engine, "a"))
            with once("a"):
                leave(engine, "never")

    with pytest.raises(OperationalError, match="could not serialize"):
        too_late()
    assert effect_once(engine, "a") == (False, None)
