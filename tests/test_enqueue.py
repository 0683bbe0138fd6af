"""What is stored of a job, on each database, and when it is due."""

from __future__ import annotations

import datetime as dt
import json
import select
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import override_settings

from django_jobs.engines.values import ClaimOrder
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.engines.common import beside_others, on_postgresql, sql
from tests.enqueues import (
    endless,
    keyed,
    nest,
    refused,
    said_of,
    stored,
    strict,
    tagged,
    take,
    with_context,
    with_options,
)

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from tests.threads import Session

pytestmark = pytest.mark.django_db(databases="__all__")


# What is stored.


def test_a_job_is_stored_with_its_defaults_and_returned_as_stored(engine: Engine) -> None:
    made = take.enqueue(1, "b", option=[2])
    assert stored(made) == {
        "type": "tests.enqueues.take",
        "queue": "default",
        "priority": 0,
        "payload": {"args": [1, "b"], "kwargs": {"option": [2]}},
        "idempotency_key": None,
        "status": "ready",
        "parked": None,
        "expires_at": None,
        "timeout": 900.0,
        "attempts": 0,
        "max_attempts": 8,
        "losses": 0,
        "suspect": False,
        "token": 0,
        "locked_by": None,
        "locked_until": None,
        "cancel_reason": None,
        "key_holds": "window",
        "last_error": "",
        "history": [],
        "progress": None,
        "result": None,
        "meta": {},
        "schedule": None,
        "slot": None,
        "started_at": None,
        "last_started_at": None,
        "finished_at": None,
    }
    assert made.run_at == made.created_at
    assert not made.get_deferred_fields()
    fields = [field.attname for field in Job._meta.concrete_fields]
    reread = Job.objects.using(engine.alias).get(pk=made.pk)
    assert {name: getattr(made, name) for name in fields} == {name: getattr(reread, name) for name in fields}


CHOSEN = ("queue", "priority", "max_attempts", "timeout")


@pytest.mark.parametrize(
    ("function", "using", "expected"),
    [
        (nothing, {}, ("default", 0, 2, 60.0)),
        (with_options, {}, ("mail", 7, 3, 30.0)),
        (endless, {}, ("default", 0, 2, None)),
        (with_options, {"priority": 0, "timeout": None}, ("mail", 0, 3, None)),
        (endless, {"timeout": 5}, ("default", 0, 2, 5.0)),
        (
            with_options,
            {"queue": "other", "priority": -100, "max_attempts": 1, "timeout": dt.timedelta(hours=1)},
            ("other", -100, 1, 3600.0),
        ),
    ],
)
def test_using_wins_over_the_job_and_the_job_over_the_settings(
    engine: Engine, function: Any, using: Any, expected: tuple[Any, ...]
) -> None:
    with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 2, "DEFAULT_TIMEOUT": 60}):
        row = stored(function.using(**using).enqueue())
    assert tuple(row[name] for name in CHOSEN) == expected


def test_positional_arguments_stay_positional(engine: Engine) -> None:
    assert strict.enqueue(1, 2).payload == {"args": [1, 2], "kwargs": {}}
    assert strict.enqueue(1, second=2).payload == {"args": [1], "kwargs": {"second": 2}}
    assert with_context.enqueue(5, other=6).payload == {"args": [5], "kwargs": {"other": 6}}
    assert take.enqueue().payload == {"args": [], "kwargs": {}}


def test_an_argument_may_be_called_self(engine: Engine) -> None:
    assert take.enqueue(self=1).payload == {"args": [], "kwargs": {"self": 1}}


class Whole(int):
    pass


ODD_VALUES: list[Any] = [
    [None, True, False, 0, 1, -1, 1.0, 0.0],
    [0.1, -1e-7, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308],
    [1e15, 1e16, 1e22, 1e23, -1e23, 2.0**53, 123456789012345680.0, 1.5e300],
    [2**53 + 1, 2**63, -(2**64), 10**100, 10**4200, -(10**4200)],
    ["", " ", "ß", "日本", "😀", "\u2028\u2029", "\x01\x1f\x7f\x80", "\ufeff", "\uffff", "e\u0301", "\u202e"],
    ['"', "\\", "'", "%s %% %(a)s", "\\u0000", "\\x00", "1e+23", '"1e+23"', '\\"1e+23', "\\\\", "\t\r\n", "$1", "?"],
    [[], {}, [[]], [{}], {"": {"": []}}, {"args": [], "kwargs": {}}],
    [{"b": 1, "a": 2}, {"1": 1}, {"ß": "ß", '"': "\\", "k" * 300: 1, "1e+5": 1e25}],
    [list(range(1000)), "x" * 10_000, nest(90)],
]


@pytest.mark.parametrize("values", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_what_is_stored_is_what_was_passed(engine: Engine, values: list[Any]) -> None:
    take.enqueue(*values, option=values)
    order = ClaimOrder(locked_by="w:1", lease=30, limit=1, queues=None, types=(take.name,))
    (claimed,) = engine.claim(order).jobs
    assert as_text(json.loads(claimed.payload)) == as_text({"args": values, "kwargs": {"option": values}})


def as_text(value: Any) -> str:
    # 1, 1.0 and True are equal in Python. PostgreSQL does not keep the order of keys.
    return json.dumps(value, sort_keys=True)


def test_subclasses_of_json_kinds_are_stored_as_their_kind(engine: Engine) -> None:
    made = take.enqueue(Whole(5), OrderedDict(b=1), Job.Status.DONE)
    assert made.refresh().args == [5, {"b": 1}, "done"]


def test_the_tags_of_a_type_are_kept_with_each_of_its_jobs(engine: Engine) -> None:
    for made in (
        tagged.enqueue().refresh(),
        Job.objects.using(engine.alias).get(pk=tagged.enqueue_many([tagged.call()])[0]),
    ):
        assert made.tags == ["mail", "größe 1"]
        assert made.meta == {"tags": ["mail", "größe 1"]}
    both = tagged.using(idempotency_key="k", unique="waiting").enqueue()
    assert (both.tags, both.meta["key"]) == (["mail", "größe 1"], "k")
    assert nothing.enqueue().refresh().tags == []


# When it is due.


def test_a_delay_counts_from_the_statement_and_not_from_the_start_of_the_transaction(engine: Engine) -> None:
    if engine.name == "sqlite":
        statement, pause = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')", None
    else:
        statement, pause = "SELECT statement_timestamp()", "SELECT pg_sleep(0.05)"
    with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        cursor.execute("SELECT 1")
        if pause:
            cursor.execute(pause)
        cursor.execute(statement)
        before = cursor.fetchone()[0]
        made = nothing.using(delay=dt.timedelta(minutes=5)).enqueue()
    if isinstance(before, str):
        before = dt.datetime.fromisoformat(before).replace(tzinfo=dt.UTC)
    assert dt.timedelta(0) <= made.created_at - before < dt.timedelta(seconds=5)
    assert abs(made.run_at - made.created_at - dt.timedelta(minutes=5)) <= dt.timedelta(milliseconds=2)


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ],
)
def test_a_run_at_is_stored_as_given(engine: Engine, moment: dt.datetime) -> None:
    made = nothing.using(run_at=moment).enqueue()
    assert (made.run_at, made.refresh().run_at) == (moment, moment)


def test_a_run_at_in_the_past_is_due_and_one_in_the_future_is_not(engine: Engine) -> None:
    past = nothing.using(run_at=dt.datetime(1, 1, 1, tzinfo=dt.UTC)).enqueue()
    nothing.using(run_at=dt.datetime(9999, 12, 31, tzinfo=dt.UTC)).enqueue()
    nothing.using(delay=0.5).enqueue()
    now = nothing.enqueue()
    assert list(Job.objects.using(engine.alias).due().order_by("id")) == [past, now]


# Transactions.


def test_a_committed_job_is_there_and_a_rolled_back_one_never_was(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        kept = nothing.enqueue(1)
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(2)
            keyed.enqueue(3)
            transaction.set_rollback(True, using=engine.alias)
        again = keyed.enqueue(4)
    with transaction.atomic(using=engine.alias):
        nothing.enqueue(5)
        transaction.set_rollback(True, using=engine.alias)
    assert [job.args for job in Job.objects.using(engine.alias).order_by("id")] == [[1], [4]]
    assert list(Job.objects.using(engine.alias).order_by("id")) == [kept, again]


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_transaction_on_another_database_alone_is_refused_unless_detached(engine: Engine) -> None:
    (other,) = {"default", "lite"} - {engine.alias}
    with transaction.atomic(using=other):
        with pytest.raises(InvalidJob, match=f"open on the database '{other}' and none on the jobs' database"):
            nothing.enqueue(1)
        kept = nothing.using(detached=True).enqueue(2)
        with transaction.atomic(using=engine.alias):
            both = nothing.enqueue(3)
    assert list(Job.objects.using(engine.alias).order_by("id")) == [kept, both]


def test_an_enqueue_is_part_of_the_transaction_on_the_jobs_alias(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        Effect.objects.using(engine.alias).create(key="before")
        nothing.enqueue()
        transaction.set_rollback(True, using=engine.alias)
    assert (Effect.objects.using(engine.alias).count(), Job.objects.using(engine.alias).count()) == (0, 0)


def test_aenqueue_does_what_enqueue_does(engine: Engine) -> None:
    async def main() -> list[Job]:
        return [
            await with_options.aenqueue(),
            await take.using(priority=3, idempotency_key="k").aenqueue(1, option=2),
            await take.using(priority=3, idempotency_key="k").aenqueue(1, option=2),
        ]

    first, second, third = async_to_sync(main)()
    assert stored(first) == stored(with_options.enqueue())
    assert (stored(second)["payload"], stored(second)["priority"]) == ({"args": [1], "kwargs": {"option": 2}}, 3)
    assert second == third


def test_aenqueue_refuses_what_enqueue_refuses(engine: Engine) -> None:
    said = said_of("argument 'value'", "a set ({1}), not JSON; pass a list, for example sorted(value)")
    with refused(engine, InvalidJobType, said):
        async_to_sync(take.aenqueue)({1})


@beside_others
def test_an_enqueue_does_without_what_some_systems_lack(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    connections[engine.alias].ensure_connection()
    monkeypatch.delattr(select, "poll")  # as on Windows
    assert nothing.enqueue(1).refresh().status == "ready"


@on_postgresql
@beside_others
def test_without_poll_a_connection_that_died_while_idle_is_replaced_as_well(
    engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = sql(engine, "SELECT pg_backend_pid()")[0][0]
    other.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
    monkeypatch.delattr(select, "poll")
    assert nothing.enqueue(1).refresh().status == "ready"
