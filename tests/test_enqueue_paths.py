"""The quick ways in which jobs are stored: the same rows by all of them, and what sessions and callers are left with."""

from __future__ import annotations

import datetime as dt
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import IdempotencyConflict
from django_jobs.engines import jobs_alias
from django_jobs.engines import postgresql_prepared as prepared
from django_jobs.models import Job
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others, on_postgresql, sql
from tests.enqueues import jobs, keyed, stored, take
from tests.threads import Session, together

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

LATER = dt.datetime(2040, 1, 1, 12, 30, 15, 123456, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45)))
FIRST_MOMENT = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
LAST_MOMENT = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"queue": "größe", "priority": -100, "max_attempts": 1, "timeout": None},
    {"queue": "\"\\{};'%s", "priority": 100, "timeout": 0.1},
    {"delay": 0.000001},
    {"delay": 12345.678901, "expires": 12345.678902},
    {"delay": dt.timedelta(days=3650), "expires": LAST_MOMENT},
    {"run_at": LATER, "expires": LATER + dt.timedelta(microseconds=1)},
    {"run_at": FIRST_MOMENT, "expires": dt.timedelta(days=3650)},
    {"run_at": LAST_MOMENT},
]
TEXTS = [
    "a\tb\nc\rd\x0b\x0c\x1f\x7f",
    "\\",
    "\\N",
    "\\.",
    "\\n\\t\\\\",
    "\n",
    "'; --",
    "$1 %s %% %(payload)s",
    "ß日本😀\u0085\u2028\u2029\ufeff",
    '{"args": [1]}',
]


def settle(engine: Engine) -> None:
    """Have the session prepare what it is asked for, from here on."""
    if engine.name == "postgresql":
        for _ in range(prepared.AFTER + 1):
            nothing.enqueue()
        Job.objects.using(engine.alias).all().delete()
        assert prepared._asked[connections[engine.alias].connection] is not None


def alike(function: Any, *args: Any) -> Job:
    """Store by `enqueue_many` with others that differ by the arguments only."""
    ids = function.enqueue_many([function.call("before"), function.call(*args), function.call("after")])
    return job_of(ids[1])


def mixed(function: Any, *args: Any) -> Job:
    ids = function.enqueue_many([take.using(queue="other").call("before"), function.call(*args), keyed.call("after")])
    return job_of(ids[1])


def with_key(function: Any, *args: Any) -> Job:
    found: Job = function.using(idempotency_key="of its own").enqueue(*args)
    return found


def many_with_keys(function: Any, *args: Any) -> Job:
    (pk,) = function.enqueue_many([function.using(idempotency_key="of its own").call(*args)])
    return job_of(pk)


def job_of(pk: int) -> Job:
    found: Job = Job.objects.using(jobs_alias()).get(pk=pk)
    return found


def row(job: Job) -> dict[str, Any]:
    """Return what is in a row, times as distances from its making where they were given so, without its key."""
    found = stored(job) | {"idempotency_key": None}
    made = Job.objects.using(job._state.db).values("run_at", "created_at").get(pk=job.pk)
    found["run_at"] = _since(made["created_at"], made["run_at"])
    if found["expires_at"] is not None:
        found["expires_at"] = _since(made["created_at"], found["expires_at"])
    return found


def _since(made: dt.datetime, moment: dt.datetime) -> Any:
    given = moment in (LATER, LATER + dt.timedelta(microseconds=1), FIRST_MOMENT, LAST_MOMENT)
    return moment if given else moment - made


WAYS = [alike, mixed, with_key, many_with_keys]


# The same row whatever the way.


@alone
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_every_way_stores_the_row_that_a_single_enqueue_stores(
    engine: Engine, way: Callable[..., Job], options: dict[str, Any]
) -> None:
    settle(engine)
    function = take.using(**options)
    expected = row(function.enqueue(1.5, option=[None]))
    actual = row(way(_WithOption(function), 1.5))
    if engine.name == "sqlite":  # whose own clock may have moved on between the two columns
        for name in ("run_at", "expires_at"):
            expected[name], actual[name] = _rounded(expected[name]), _rounded(actual[name])
    assert actual == expected


class _WithOption:
    """Stands for a function all of whose calls have `option=[None]`."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.enqueue = partial(function.enqueue, option=[None])
        self.call = partial(function.call, option=[None])
        self.enqueue_many = function.enqueue_many

    def using(self, **options: Any) -> _WithOption:
        return _WithOption(self._function.using(**options))


def _rounded(value: Any) -> Any:
    return round(value / dt.timedelta(seconds=1)) if isinstance(value, dt.timedelta) else value


@alone
@pytest.mark.parametrize("way", [lambda function, *args: function.enqueue(*args), *WAYS])
def test_texts_are_stored_as_they_are_whatever_they_mean_to_a_database(engine: Engine, way: Callable[..., Job]) -> None:
    settle(engine)
    found = way(take.using(queue="q"), TEXTS, {text: text for text in TEXTS}).refresh()
    assert found.args == [TEXTS, {text: text for text in TEXTS}]


@alone
@pytest.mark.parametrize("text", TEXTS)
def test_keys_are_stored_and_found_as_they_are(engine: Engine, text: str) -> None:
    calls = [take.using(idempotency_key=text).call(1), take.using(idempotency_key=f"{text}b").call(2)]
    ids = take.enqueue_many(calls)
    assert [job.idempotency_key for job in jobs(engine)] == [text, f"{text}b"]
    assert take.enqueue_many(calls) == ids
    assert take.using(idempotency_key=text).enqueue(1).pk == ids[0]


@alone
def test_options_are_those_of_each_call_however_they_alternate(engine: Engine) -> None:
    settle(engine)
    options: list[dict[str, Any]] = [
        {"queue": "a"},
        {"queue": "b"},
        {"queue": "a", "priority": 1},
        {"queue": "a", "idempotency_key": "k1", "unique": "waiting"},
        {"queue": "a", "idempotency_key": "k2", "unique": "waiting"},
        {"queue": "a", "idempotency_key": "k3", "unique": "window"},
        {"queue": "a", "idempotency_key": "k4"},
    ]
    ids = take.enqueue_many([take.using(**options[n % 7]).call(n % 7) for n in range(21)])
    found = Job.objects.using(engine.alias).in_bulk(ids)
    said = [
        (job.args, job.queue, job.priority, job.idempotency_key, job.key_holds, job.meta)
        for job in (found[pk] for pk in ids)
    ]
    assert said == 3 * [
        ([0], "a", 0, None, "window", {}),
        ([1], "b", 0, None, "window", {}),
        ([2], "a", 1, None, "window", {}),
        ([3], "a", 0, "k1", "waiting", {"key": "k1"}),
        ([4], "a", 0, "k2", "waiting", {"key": "k2"}),
        ([5], "a", 0, "k3", "window", {}),
        ([6], "a", 0, "k4", "window", {}),
    ]


@alone
def test_the_job_that_is_returned_is_whole_and_shares_nothing_with_others(engine: Engine) -> None:
    settle(engine)
    given = {"a": [1]}
    first, second = take.enqueue(given), take.using(idempotency_key="k", unique="waiting").enqueue(given)
    for made in (first, second):
        assert (made._state.adding, made._state.db, made.get_deferred_fields()) == (False, engine.alias, set())
        reread = Job.objects.using(engine.alias).get(pk=made.pk)
        fields = [field.attname for field in Job._meta.concrete_fields]
        assert {name: getattr(made, name) for name in fields} == {name: getattr(reread, name) for name in fields}
    first.payload["args"][0]["a"].append(2)
    first.history.append({})
    first.meta["x"] = 1
    assert given == {"a": [1]}
    assert (second.args, second.history, take.enqueue().meta) == ([{"a": [1]}], [], {})


# The order of ids.


@beside_others
@pytest.mark.parametrize("options", [{}, {"delay": 5}], ids=["alike", "mixed"])
def test_ids_grow_in_the_order_of_the_calls_also_beside_others(engine: Engine, options: dict[str, Any]) -> None:
    def ask(start: int) -> list[int]:
        numbers = range(start, start + 3_000)
        return take.enqueue_many((take.using(**options) if n % 2 else take).call(n) for n in numbers)

    found = together([partial(ask, start) for start in (0, 3_000, 6_000)])
    stored_at = {job.pk: job.args[0] for job in jobs(engine)}
    for start, ids in zip((0, 3_000, 6_000), found, strict=True):
        assert ids == sorted(ids)
        assert [stored_at[pk] for pk in ids] == list(range(start, start + 3_000))


# Memory.


@alone
def test_many_calls_from_a_generator_are_never_held_all_at_once(engine: Engine) -> None:
    def calls() -> Iterator[Any]:
        for number in range(20_000):
            yield take.call("x" * 1_000, number)

    take.enqueue_many(take.call("x" * 1_000, number) for number in range(2_000))
    gc.collect()
    tracemalloc.start()
    try:
        ids = take.enqueue_many(calls())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(ids) == 20_000
    assert peak < 10_000_000  # of 20,000,000 characters


# Round trips.


@beside_others
@on_postgresql
def test_a_single_enqueue_is_one_statement_with_or_without_a_key(engine: Engine) -> None:
    settle(engine)
    for function in (take, keyed):
        with CaptureQueriesContext(connections[engine.alias]) as captured:
            function.enqueue(1)
        (query,) = captured.captured_queries
        assert "INSERT INTO django_jobs_job" in query["sql"]
        assert '{"args":[1],"kwargs":{}}' in query["sql"]


@alone
@on_postgresql
def test_inside_a_transaction_only_a_key_needs_a_savepoint(engine: Engine) -> None:
    found = []
    for function in (take, keyed):
        with CaptureQueriesContext(connections[engine.alias]) as captured:
            function.enqueue(1)
        found.append([query["sql"].split()[0] for query in captured.captured_queries])
    # Behind the remarks at its top.
    assert found == [["--"], ["SAVEPOINT", "--", "RELEASE"]]


@beside_others
@on_postgresql
def test_a_key_leaves_the_sessions_lock_timeout_as_it_was(engine: Engine) -> None:
    sql(engine, "SET lock_timeout = '7s'")
    try:
        keyed.enqueue(1)
        assert sql(engine, "SHOW lock_timeout") == [("7s",)]
        with transaction.atomic(using=engine.alias):
            sql(engine, "SET LOCAL lock_timeout = '8s'")
            take.using(idempotency_key="other").enqueue(1)
            keyed.enqueue(1)
            with pytest.raises(IdempotencyConflict):
                keyed.enqueue(2)
            assert sql(engine, "SHOW lock_timeout") == [("8s",)]
    finally:
        sql(engine, "RESET lock_timeout")


# Prepared statements.


@contextmanager
def options_of(engine: Engine, other: Session, **options: Any) -> Iterator[Any]:
    """Have another session's connection be as with these OPTIONS."""
    connection = other.do(lambda: connections[engine.alias])
    before = connection.settings_dict["OPTIONS"]
    connection.settings_dict["OPTIONS"] = {**before, **options}
    try:
        yield connection
    finally:
        connection.settings_dict["OPTIONS"] = before


def kept(engine: Engine) -> int:
    return int(sql(engine, "SELECT count(*) FROM pg_prepared_statements")[0][0])


@beside_others
@on_postgresql
def test_a_session_that_enqueues_again_and_again_keeps_the_statement_and_a_young_one_does_not(
    engine: Engine, other: Session
) -> None:
    def count() -> int:
        return kept(engine)

    assert other.do(count) == 0
    for _ in range(prepared.AFTER):
        other.do(nothing.enqueue)
    assert other.do(count) == 0
    other.do(nothing.enqueue)
    assert other.do(count) == 1
    for _ in range(20):
        other.do(nothing.enqueue)
    assert other.do(count) == 1


@beside_others
@on_postgresql
def test_a_statement_that_the_session_forgot_is_asked_without_being_kept(engine: Engine, other: Session) -> None:
    for _ in range(prepared.AFTER + 2):
        other.do(nothing.enqueue)
    other.sql("DISCARD ALL")
    made = [other.do(nothing.enqueue) for _ in range(3)]
    assert [job.pk for job in jobs(engine)][-3:] == [job.pk for job in made]
    assert other.do(lambda: kept(engine)) == 0


@beside_others
@on_postgresql
def test_where_the_project_has_turned_it_off_nothing_is_kept(engine: Engine, other: Session) -> None:
    with options_of(engine, other, prepare_threshold=None):
        for _ in range(prepared.AFTER + 3):
            other.do(nothing.enqueue)
        assert other.do(lambda: kept(engine)) == 0


@beside_others
@on_postgresql
def test_a_pool_that_resets_its_connections_may_have_them_forget(engine: Engine, other: Session) -> None:
    for pool, unwanted in [(True, False), ({"min_size": 1}, False), ({"reset": print}, True)]:
        with options_of(engine, other, pool=pool) as connection:
            assert prepared._is_unwanted(connection) is unwanted


@beside_others
@on_postgresql
def test_prepared_or_not_the_connection_is_left_as_the_project_has_it(engine: Engine, other: Session) -> None:
    def left() -> Any:
        raw: Any = connections[engine.alias].connection
        return raw.prepare_threshold, raw.cursor_factory

    other.do(lambda: connections[engine.alias].ensure_connection())
    before = other.do(left)
    for _ in range(prepared.AFTER + 3):
        other.do(nothing.enqueue)
    assert other.do(left) == before


@beside_others
@on_postgresql
def test_what_watches_or_blocks_statements_sees_those_that_store_jobs(engine: Engine) -> None:
    seen: list[str] = []

    def watch(execute: Any, statement: str, *others: Any) -> Any:
        seen.append(statement)
        return execute(statement, *others)

    def block(*given: Any) -> Any:
        raise PermissionError("no statements here")

    settle(engine)
    with connections[engine.alias].execute_wrapper(watch):
        take.enqueue(1)
        take.enqueue_many([take.call(1), take.call(2)])
    assert sum("INSERT INTO django_jobs_job" in statement for statement in seen) == 2
    with connections[engine.alias].execute_wrapper(block):
        for ask in (lambda: take.enqueue(1), lambda: take.enqueue_many([take.call(1)])):
            with pytest.raises(PermissionError):
                ask()
    assert len(jobs(engine)) == 3


@beside_others
@on_postgresql
def test_a_row_that_the_database_refuses_leaves_the_transaction_usable_and_nothing_of_many(engine: Engine) -> None:
    sql(engine, "ALTER TABLE django_jobs_job ADD CONSTRAINT no_thirteen CHECK (payload->'args'->>0 <> '13')")
    try:
        with transaction.atomic(using=engine.alias):
            first = take.enqueue(1)
            with pytest.raises(Exception, match="no_thirteen"):
                take.enqueue_many(take.call(n) for n in range(2_500) if n % 1000 == 13 or n > 50)
            with pytest.raises(Exception, match="no_thirteen"):
                take.enqueue_many(take.call(n) for n in range(20))
            second = take.enqueue(2)
        assert jobs(engine) == [first, second]
    finally:
        sql(engine, "ALTER TABLE django_jobs_job DROP CONSTRAINT no_thirteen")


@alone
@on_postgresql
def test_a_project_that_binds_at_the_server_stores_the_same(engine: Engine, other: Session) -> None:
    def store() -> list[dict[str, Any]]:
        with transaction.atomic(using=engine.alias):
            found = [row(way(take.using(**options), TEXTS)) for options in OPTIONS for way in (alike, mixed)]
            found += [row(take.using(**options).enqueue(TEXTS)) for options in OPTIONS]
            transaction.set_rollback(True, using=engine.alias)
        return found

    with options_of(engine, other, server_side_binding=True):
        other.do(lambda: connections[engine.alias].close())
        bound = other.do(store)
        assert "Server" in other.do(lambda: connections[engine.alias].connection.cursor_factory.__name__)
    assert bound == store()


@beside_others
@on_postgresql
@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_the_times_of_the_job_that_is_returned_are_those_that_django_reads(
    engine: Engine, other: Session, use_tz: bool, zone: str
) -> None:
    def compare() -> None:
        for made in (
            take.enqueue(),
            take.using(delay=60.5, expires=90).enqueue(),
            take.using(run_at=later, idempotency_key="k").enqueue(),
        ):
            reread = Job.objects.using(engine.alias).get(pk=made.pk)
            for name in ("run_at", "expires_at", "created_at"):
                one, two = getattr(made, name), getattr(reread, name)
                assert (one, one and one.tzinfo) == (two, two and two.tzinfo)

    later = LATER if use_tz else LATER.replace(tzinfo=None)
    connection = other.do(lambda: connections[engine.alias])
    before = connection.settings_dict["TIME_ZONE"]
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone):
        connection.settings_dict["TIME_ZONE"] = zone if use_tz else None
        try:
            for name in ("timezone", "timezone_name"):
                connection.__dict__.pop(name, None)
            other.do(connection.close)
            other.do(compare)
        finally:
            connection.settings_dict["TIME_ZONE"] = before
