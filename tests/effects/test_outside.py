from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.models import F

from django_jobs import InvalidJob, InvalidJobType, outside
from django_jobs.engines.base import Engine
from django_jobs.engines.effects import EffectStore
from django_jobs.engines.idle import in_transaction
from django_jobs.exceptions import JobsError
from django_jobs.models import Effect
from tests.effects.common import in_job, rows
from tests.threads import Session

pytestmark = pytest.mark.django_db(databases="__all__")
committed = pytest.mark.django_db(transaction=True, databases="__all__")


def ask(key: str, result: Any) -> None:
    with outside(key) as call:
        call.result = result


def raises(key: str) -> None:
    with suppress(ZeroDivisionError), outside(key):
        raise ZeroDivisionError


@committed
def test_asked_is_committed_before_the_call_and_answered_after_it(engine: Engine, other: Session) -> None:
    with outside("a") as call:
        assert other.do(lambda: rows(engine)) == [("outside", "a", 1, False, None)]
        assert (call.key, call.answered, call.may_have_happened, call.result) == ("a", False, False, None)
        call.result = {"charge": 17, "big": 1e23}
        assert call.result == {"charge": 17, "big": 1e23}
    assert other.do(lambda: rows(engine)) == [("outside", "a", 1, True, {"charge": 17, "big": 1e23})]


def test_what_was_answered_is_read_and_not_asked_again(engine: Engine) -> None:
    ask("a", "ch_1")
    with outside("a") as call:
        assert (call.answered, call.may_have_happened, call.result) == (True, False, "ch_1")
    assert rows(engine) == [("outside", "a", 1, True, "ch_1")]


def test_an_answer_without_a_result_is_an_answer(engine: Engine) -> None:
    with outside("a"):
        pass
    with outside("a") as call:
        assert (call.answered, call.result) == (True, None)


def test_a_body_that_raised_leaves_what_may_have_happened(engine: Engine) -> None:
    for asks in (1, 2, 3):
        raises("a")
        assert rows(engine) == [("outside", "a", asks, False, None)]
    with outside("a") as call:
        assert (call.answered, call.may_have_happened) == (False, True)
        call.result = 1
    assert rows(engine) == [("outside", "a", 4, True, 1)]


def test_asking_again_says_when_and_for_which_job(engine: Engine) -> None:
    with in_job(17):
        raises("a")
    Effect.objects.using(engine.alias).update(asked_at=F("asked_at") - timedelta(hours=1))
    before = Effect.objects.using(engine.alias).get()
    with in_job(18):
        raises("a")
    after = Effect.objects.using(engine.alias).get()
    assert (before.job_id, after.job_id) == (17, 18)
    assert after.asked_at - before.asked_at >= timedelta(hours=1)


def test_the_same_key_of_once_is_another(engine: Engine) -> None:
    ask("a", 1)
    with transaction.atomic(using=engine.alias):
        from django_jobs import once

        with once("a") as first:
            assert first
    assert [row[:2] for row in rows(engine)] == [("once", "a"), ("outside", "a")]


@pytest.mark.parametrize("begin", ["atomic", "raw BEGIN", "autocommit off"])
@committed
def test_inside_a_transaction_it_is_refused_with_the_remedy(engine: Engine, begin: str) -> None:
    connection = connections[engine.alias]
    asked = pytest.raises(InvalidJob, match=r"(?s)inside a transaction.*atomic job.*enqueue in the transaction a job")
    if begin == "atomic":
        with asked, transaction.atomic(using=engine.alias):
            ask("a", 1)
    elif begin == "autocommit off":
        connection.set_autocommit(False)
        with asked:
            ask("a", 1)
        connection.rollback()
        connection.set_autocommit(True)
    else:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
        with asked:
            ask("a", 1)
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
    assert rows(engine) == []
    ask("a", 1)
    assert rows(engine) == [("outside", "a", 1, True, 1)]


def test_a_transaction_inside_that_of_a_test_case_is_one(engine: Engine) -> None:
    with pytest.raises(InvalidJob, match="inside a transaction"), transaction.atomic(using=engine.alias):
        ask("a", 1)


@pytest.mark.parametrize(("key", "error"), [("", InvalidJob), ("x" * 256, InvalidJob), (None, InvalidJobType)])
def test_a_key_that_cannot_be_used_is_refused(engine: Engine, key: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="key is"):
        outside(key)
    assert rows(engine) == []


def test_a_replay_that_sets_a_result_is_told_what_it_forgot(engine: Engine) -> None:
    ask("a", 1)
    with pytest.raises(InvalidJob, match=r"only `if not call\.answered`"):
        ask("a", 2)
    assert rows(engine) == [("outside", "a", 1, True, 1)]


def test_a_result_that_cannot_be_stored_leaves_what_may_have_happened(engine: Engine) -> None:
    with pytest.raises(InvalidJobType):
        ask("a", object())
    assert rows(engine) == [("outside", "a", 1, False, None)]


@committed
def test_it_may_be_the_first_that_a_thread_asks_of_the_database(engine: Engine, other: Session) -> None:
    assert other.do(lambda: in_transaction(connections[engine.alias])) is False
    other.do(lambda: ask("a", 1))
    assert rows(engine) == [("outside", "a", 1, True, 1)]


def test_the_first_of_two_answers_stays(engine: Engine) -> None:
    with outside("a") as slow:
        ask("a", "fast")
        slow.result = "slow"
    assert rows(engine) == [("outside", "a", 2, True, "fast")]


def test_an_answer_is_recorded_although_the_record_of_asking_was_deleted(engine: Engine) -> None:
    with in_job(17), outside("a") as call:
        Effect.objects.using(engine.alias).all().delete()
        call.result = 1
    assert rows(engine) == [("outside", "a", 1, True, 1)]
    assert Effect.objects.using(engine.alias).get().job_id == 17


@committed
def test_an_async_body_is_recorded_in_the_same_way(engine: Engine) -> None:
    async def call_it(fail: bool) -> tuple[bool, bool, Any]:
        async with outside("a") as call:
            before = (call.answered, call.may_have_happened, call.result)
            if fail:
                raise ZeroDivisionError
            if not call.answered:
                call.result = "async"
        return before

    with suppress(ZeroDivisionError):
        async_to_sync(call_it)(True)
    assert async_to_sync(call_it)(False) == (False, True, None)
    assert async_to_sync(call_it)(False) == (True, False, "async")
    assert rows(engine) == [("outside", "a", 2, True, "async")]


@committed
def test_with_in_async_code_names_async_with_and_records_nothing(engine: Engine) -> None:
    async def call_it() -> None:
        with outside("a"):
            raise AssertionError("its body is not reached")

    with pytest.raises(InvalidJobType, match=r"use `async with outside"):
        async_to_sync(call_it)()
    assert rows(engine) == []


@pytest.mark.parametrize("name", ["reslt", "answered", "may_have_happened", "key", "first"])
def test_nothing_but_the_result_of_a_call_can_be_set(engine: Engine, name: str) -> None:
    with outside("a") as call:
        with pytest.raises(AttributeError):
            setattr(call, name, True)
        call.result = 1
    assert rows(engine) == [("outside", "a", 1, True, 1)]


@committed
def test_a_connection_that_died_during_the_call_is_replaced_for_the_answer(
    vendor: str, engine: Engine, other: Session
) -> None:
    if vendor != "postgresql":
        pytest.skip("a file has no server that ends sessions")
    with outside("a") as call:
        (pid,) = connections[engine.alias].cursor().execute("SELECT pg_backend_pid()").fetchone()
        other.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
        call.result = 1
    assert rows(engine) == [("outside", "a", 1, True, 1)]


def test_a_record_that_is_deleted_between_the_two_statements_is_asked_for_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("a", "old")
    answered = EffectStore.answered

    def deleted_first(store: EffectStore, key: str) -> Any:
        Effect.objects.using(engine.alias).all().delete()
        return answered(store, key)

    monkeypatch.setattr(EffectStore, "answered", deleted_first)
    with outside("a") as call:
        assert (call.answered, call.may_have_happened) == (False, False)

    def never(store: EffectStore, key: str, job_id: int | None) -> None:
        return None

    monkeypatch.setattr(EffectStore, "ask", never)
    with pytest.raises(JobsError, match="taken and freed 3 times"):
        ask("a", 1)
