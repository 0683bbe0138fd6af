"""How statistics are kept small."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_jobs.models import Stat
from django_jobs.models.clock import database_now, for_row
from django_jobs.queue import stats
from tests.engines.common import beside_others, on_postgresql
from tests.threads import session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = beside_others


def make(engine: Engine, days: float, **values: Any) -> Stat:
    """Make a row of the minute so many days ago."""
    given = {"queue": "default", "type": "t", "incarnation": "a1", "runs": [1, 2, 0], "waits": [0, 0, 3], "done": 3}
    moment = (database_now(engine.alias) - timedelta(days=days)).replace(second=0, microsecond=0)
    return Stat.objects.using(engine.alias).create(**{**given, "minute": for_row(moment, engine.alias), **values})


def hours(engine: Engine, seconds: int = 3600) -> list[tuple[Any, ...]]:
    rows = Stat.objects.using(engine.alias).filter(seconds=seconds).order_by("minute", "queue", "type")
    return [(row.queue, row.type, row.incarnation, row.done, row.retried, row.runs, row.waits) for row in rows]


def test_minutes_that_ended_more_than_a_day_ago_become_hours_with_the_same_sums(engine: Engine) -> None:
    first = make(engine, 2)
    others: list[dict[str, Any]] = [{"incarnation": "b2", "retried": 2}, {"queue": "mail"}, {"type": "u", "runs": [5]}]
    for values in others:
        make(engine, 2, minute=first.minute, **values)
    make(engine, 2, minute=first.minute.replace(minute=(first.minute.minute + 1) % 60))
    new = make(engine, 0.03)
    assert stats.fold(engine) == 5
    assert hours(engine) == [
        ("default", "t", "", 9, 2, [3, 6, 0], [0, 0, 9]),
        ("default", "u", "", 3, 0, [5], [0, 0, 3]),
        ("mail", "t", "", 3, 0, [1, 2, 0], [0, 0, 3]),
    ]
    assert Stat.objects.using(engine.alias).filter(seconds=60).get() == new
    assert stats.fold(engine) == 0


def test_minutes_that_ended_more_than_an_hour_ago_become_tens_of_minutes_and_those_become_hours(engine: Engine) -> None:
    start = make(engine, 0.5).minute
    start -= timedelta(minutes=start.minute % 10)
    Stat.objects.using(engine.alias).all().delete()
    for minute in (0, 9, 10):
        values = {"lease_expirations": 1, "slots_missed": minute, "attempts": [1] * (minute % 4)}
        make(engine, 0, minute=start + timedelta(minutes=minute), **values)
    assert stats.fold(engine) == 3
    tens = Stat.objects.using(engine.alias).order_by("minute")
    assert [(row.minute, row.seconds, row.done, row.lease_expirations, row.slots_missed) for row in tens] == [
        (start, 600, 6, 2, 9),
        (start + timedelta(minutes=10), 600, 3, 1, 10),
    ]
    assert [row.attempts for row in tens] == [[1], [1, 1]]
    assert stats.fold(engine) == 0
    hour_before = start.replace(minute=0) - timedelta(days=1)
    for minute, row in zip((0, 10), tens, strict=True):
        row.minute = hour_before + timedelta(minutes=minute)
        row.save(using=engine.alias)
    assert stats.fold(engine) == 2
    found = Stat.objects.using(engine.alias).get()
    assert (found.minute, found.seconds, found.slots_missed, found.attempts) == (hour_before, 3600, 19, [2, 1])


def test_a_day_is_some_thousands_of_rows_however_many_processes_wrote_it(engine: Engine) -> None:
    types, writers = 10, 8
    start = (database_now(engine.alias) - timedelta(hours=5)).replace(minute=0, second=0, microsecond=0)
    rows = [
        Stat(
            minute=for_row(start + timedelta(minutes=minute), engine.alias),
            queue="default",
            type=f"t{kind}",
            incarnation=str(writer),
            done=1,
            runs=[1],
            waits=[1],
        )
        for minute in range(60)
        for kind in range(types)
        for writer in range(writers)
    ]
    Stat.objects.using(engine.alias).bulk_create(rows, batch_size=1000)
    while stats.fold(engine) == stats.BATCH:
        pass
    found = Stat.objects.using(engine.alias)
    assert found.count() == 6 * types  # an hour: a day is 24 of them
    assert sum(row.done for row in found.all()) == len(rows)


def test_a_minute_of_an_hour_that_was_folded_before_is_added_to_it(engine: Engine) -> None:
    for incarnation in ("a1", "b2"):
        make(engine, 2, incarnation=incarnation)
        assert stats.fold(engine) == 1
    assert [row[3:] for row in hours(engine)] == [(6, 0, [2, 4, 0], [0, 0, 6])]


def test_many_are_folded_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "BATCH", 2)
    for number in range(5):
        make(engine, 2, incarnation=f"a{number}")
    assert [stats.fold(engine) for _ in range(4)] == [2, 2, 1, 0]
    assert [row[3] for row in hours(engine)] == [15]


def test_what_is_older_than_it_is_kept_for_is_deleted_in_batches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "BATCH", 2)
    for number in range(3):
        make(engine, 31, incarnation=f"a{number}")
    kept = make(engine, 29, seconds=3600)
    assert [stats.forget(engine, 30 * 86400.0) for _ in range(3)] == [2, 1, 0]
    assert Stat.objects.using(engine.alias).get() == kept


@on_postgresql
def test_two_who_fold_at_once_count_nothing_twice(engine: Engine) -> None:
    for number in range(4):
        make(engine, 2, incarnation=f"a{number}")
    with session(engine.alias) as other, transaction.atomic(using=engine.alias):
        assert stats.fold(engine) == 4
        assert other.do(lambda: stats.fold(engine)) == 0
    assert [row[3] for row in hours(engine)] == [12]
