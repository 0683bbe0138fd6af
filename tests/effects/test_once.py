from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction

from django_jobs import InvalidJob, InvalidJobType, once, outside
from django_jobs.engines.base import Engine
from django_jobs.engines.effects import EffectStore
from django_jobs.exceptions import JobsError
from django_jobs.models import Effect
from tests.effects.common import effect_once, in_job, leave, rows, truth

pytestmark = pytest.mark.django_db(databases="__all__")


def test_a_replay_is_not_first_and_reads_the_result_of_the_first(engine: Engine) -> None:
    assert effect_once(engine, "a", {"charge": 17, "big": 1e23}) == (True, {"charge": 17, "big": 1e23})
    assert effect_once(engine, "a") == (False, {"charge": 17, "big": 1e23})
    assert effect_once(engine, "b") == (True, None)
    assert effect_once(engine, "b") == (False, None)
    assert truth(engine) == ["a", "b"]


def test_the_key_and_the_effect_are_both_there_or_neither(engine: Engine) -> None:
    with suppress(ZeroDivisionError), transaction.atomic(using=engine.alias):
        effect_once(engine, "a")
        raise ZeroDivisionError
    assert (rows(engine), truth(engine)) == ([], [])
    assert effect_once(engine, "a") == (True, None)


def test_a_body_that_raises_frees_the_key_although_the_caller_goes_on(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        with suppress(ZeroDivisionError), once("a"):
            leave(engine, "half done")
            raise ZeroDivisionError
        leave(engine, "the caller's own")
    assert truth(engine) == ["the caller's own"]
    assert effect_once(engine, "a") == (True, None)


@pytest.mark.parametrize("result", [{1, 2}, object(), {1: 2}])
def test_a_result_that_is_not_json_is_refused_where_it_is_set_and_the_key_is_free(engine: Engine, result: Any) -> None:
    with pytest.raises((InvalidJob, InvalidJobType), match="result"):
        effect_once(engine, "a", result)
    assert (rows(engine), truth(engine)) == ([], [])


def test_a_result_over_the_limit_is_refused(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "MAX_RESULT_BYTES": 10}
    with pytest.raises(InvalidJob, match="MAX_RESULT_BYTES allows 10"):
        effect_once(engine, "a", "x" * 9)
    assert effect_once(engine, "a", "x" * 8) == (True, "x" * 8)


def test_a_result_that_changes_after_it_was_set_is_stored_as_it_was(engine: Engine) -> None:
    value = [1]
    with transaction.atomic(using=engine.alias), once("a") as first:
        first.result = value
        value.append(2)
        first.result.append(3)
    assert effect_once(engine, "a") == (False, [1])


def test_a_replay_that_sets_a_result_is_told_what_it_forgot(engine: Engine) -> None:
    effect_once(engine, "a", 1)
    with pytest.raises(InvalidJob, match="only `if first`"), transaction.atomic(using=engine.alias), once("a") as first:
        first.result = 2
    assert effect_once(engine, "a") == (False, 1)


@pytest.mark.parametrize("name", ["reslt", "key", "first"])
def test_nothing_but_the_result_of_an_effect_can_be_set(engine: Engine, name: str) -> None:
    with transaction.atomic(using=engine.alias), once("a") as first:
        with pytest.raises(AttributeError):
            setattr(first, name, True)
        first.result = 1
    assert effect_once(engine, "a") == (False, 1)


def test_once_in_async_code_is_had_in_a_sync_function(engine: Engine) -> None:
    async def have() -> tuple[bool, Any]:
        return await sync_to_async(effect_once)(engine, "a", 1)

    assert [async_to_sync(have)() for _ in range(2)] == [(True, 1), (False, 1)]


def test_a_result_set_after_the_block_is_refused(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias), once("a") as first:
        pass
    with pytest.raises(InvalidJob, match="the `with` block is over"):
        first.result = 2


def test_used_without_with_it_is_refused_with_the_lines_to_write(engine: Engine) -> None:
    for used, said in ((once("a"), "as first:` and inside it `if first:`"), (outside("a"), "`if not call.answered:`")):
        with pytest.raises(InvalidJob) as caught:
            bool(used)
        assert said in str(caught.value)
        assert not callable(used)
    with pytest.raises(InvalidJobType):
        once(None)  # type: ignore[arg-type]


def test_outside_of_a_transaction_it_is_refused_and_says_the_remedy(engine: Engine) -> None:
    with pytest.raises(InvalidJob, match=rf"transaction\.atomic\(using='{engine.alias}'\)"), once("a"):
        leave(engine, "a")
    assert (rows(engine), truth(engine)) == ([], [])


def test_a_transaction_on_another_database_does_not_count(engine: Engine) -> None:
    (elsewhere,) = {"default", "lite"} - {engine.alias}
    with pytest.raises(InvalidJob, match="outside of a transaction"), transaction.atomic(using=elsewhere), once("a"):
        pass


@pytest.mark.parametrize("begin", ["raw BEGIN", "autocommit off"])
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_transaction_that_django_does_not_know_to_have_savepoints_does_not_count(engine: Engine, begin: str) -> None:
    connection = connections[engine.alias]
    if begin == "raw BEGIN":
        connection.cursor().execute("BEGIN")
    else:
        connection.set_autocommit(False)
    with pytest.raises(InvalidJob, match="outside of a transaction"), once("a"):
        leave(engine, "a")
    connection.close()
    assert (rows(engine), truth(engine)) == ([], [])


@pytest.mark.parametrize(
    ("key", "error"), [("", InvalidJob), ("x" * 256, InvalidJob), ("a\x00", InvalidJob), (7, InvalidJobType)]
)
def test_a_key_that_cannot_be_used_is_refused(engine: Engine, key: Any, error: type[Exception]) -> None:
    with transaction.atomic(using=engine.alias):
        with pytest.raises(error, match="key is"), once(key):
            pass
        leave(engine, "goes on")
    assert (rows(engine), truth(engine)) == ([], ["goes on"])


def test_within_its_own_body_a_key_is_taken(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias), once("a") as outer, once("a") as inner:
        assert (bool(outer), bool(inner)) == (True, False)


def test_a_record_names_the_job_that_had_the_effect(engine: Engine) -> None:
    with in_job(17):
        effect_once(engine, "a")
    with in_job(18):
        effect_once(engine, "a")
    effect_once(engine, "b")
    assert list(Effect.objects.using(engine.alias).order_by("key").values_list("job_id", flat=True)) == [17, None]


def test_a_key_that_is_deleted_between_the_two_statements_is_tried_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect_once(engine, "a", "old")
    taken = EffectStore.taken

    def deleted_first(store: EffectStore, key: str) -> Any:
        Effect.objects.using(engine.alias).all().delete()
        return taken(store, key)

    monkeypatch.setattr(EffectStore, "taken", deleted_first)
    assert effect_once(engine, "a", "new") == (True, "new")

    def always(store: EffectStore, key: str, job_id: int | None) -> bool:
        return False

    monkeypatch.setattr(EffectStore, "take", always)
    with pytest.raises(JobsError, match="taken and freed 3 times"):
        effect_once(engine, "a")
