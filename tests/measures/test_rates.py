from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobs.engines.base import Engine
from django_jobs.measures import rates as module
from django_jobs.measures.counted import quantile
from django_jobs.measures.rates import MINUTE, SPANS, rates, span_since
from django_jobs.models import Stat
from django_jobs.models.clock import for_row
from django_jobs.models.stat import CLASSES, COUNTERS
from tests.plans import watched

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
NOW = datetime(2026, 5, 6, 7, 8, 30, tzinfo=UTC)


def row(engine: Engine, ago: float, **values: Any) -> Stat:
    """Return a row, not stored, of the minute in which so many seconds before NOW were."""
    moment = datetime.fromtimestamp((NOW.timestamp() - ago) // MINUTE * MINUTE, UTC)
    given = {"queue": "q", "type": "t", "incarnation": "a", "runs": [], "waits": [], "done": 1}
    return Stat(**{**given, "minute": for_row(moment, engine.alias), **values})


def store(engine: Engine, *rows: Stat) -> None:
    Stat.objects.using(engine.alias).bulk_create(rows)


def histogram(values: list[float]) -> list[int]:
    found = [0] * (len(CLASSES) + 1)
    for value in values:
        found[bisect_left(CLASSES, value)] += 1
    return found


def many(engine: Engine, seed: int) -> Iterator[Stat]:
    chance = random.Random(seed)
    for minutes in range(1, 60):
        for queue, job_type, incarnation in ("qta", "qtb", "qua", "mta"):
            counts = {name: chance.randrange(5) for name in COUNTERS}
            lists = {
                "runs": histogram([chance.expovariate(3) for _ in range(chance.randrange(9))]),
                "waits": histogram([chance.expovariate(1) for _ in range(chance.randrange(9))]),
                "attempts": [chance.randrange(3) for _ in range(10)],
            }
            given: dict[str, Any] = {"queue": queue, "type": job_type, "incarnation": incarnation, **counts, **lists}
            yield row(engine, minutes * 60, **given)


def test_every_number_is_the_sum_of_the_rows(engine: Engine) -> None:
    rows = list(many(engine, 1))
    store(engine, *rows)
    found = rates(engine.alias, SPANS["1h"], NOW)
    for name in COUNTERS:
        assert getattr(found.total, name) == sum(getattr(each, name) for each in rows)
        for queue, counted in found.queues.items():
            assert getattr(counted, name) == sum(getattr(each, name) for each in rows if each.queue == queue)
        for job_type, counted in found.types.items():
            assert getattr(counted, name) == sum(getattr(each, name) for each in rows if each.type == job_type)
        assert sum(getattr(part.counted, name) for part in found.series) == getattr(found.total, name)
    assert (sorted(found.queues), sorted(found.types)) == (["m", "q"], ["t", "u"])
    for name in ("runs", "waits", "attempts"):
        columns = zip(*(getattr(each, name) for each in rows), strict=True)
        assert list(getattr(found.total, name)) == [sum(column) for column in columns]


def test_a_percentile_lies_in_the_class_of_the_true_one() -> None:
    chance = random.Random(2)
    for _ in range(200):
        values = sorted(chance.lognormvariate(0, 4) for _ in range(chance.randrange(1, 400)))
        for share in (0.5, 0.95, 0.99):
            true = values[max(0, -int(-share * len(values) // 1) - 1)]
            found = quantile(histogram(values), share)
            assert found is not None
            assert found.low <= true
            assert found.high is None or true <= found.high


def test_a_percentile_in_the_class_without_an_end_is_only_said_to_be_longer() -> None:
    found = quantile(histogram([1.0, 90_000.0, 90_000.0]), 0.5)
    assert found is not None
    assert (found.low, found.high) == (3600.0, None)
    assert quantile(histogram([]), 0.5) is None


def test_rates_are_shares_of_what_ended(engine: Engine) -> None:
    store(engine, row(engine, 60, done=6, failed=1, dead=1, retried=2, cancelled=5))
    total = rates(engine.alias, SPANS["1h"], NOW).total
    assert (total.unsuccessful, total.failure_rate, total.retry_rate) == (2, 0.25, 0.2)
    empty = rates(engine.alias, SPANS["1h"], NOW + timedelta(days=2)).total
    assert (empty.done, empty.failure_rate, empty.retry_rate, empty.wait(0.5)) == (0, None, None, None)


def test_the_minute_that_is_shown_is_the_last_that_all_processes_have_stored(engine: Engine) -> None:
    values: list[tuple[float, int, str]] = [(5, 1, "a"), (60, 10, "a"), (60, 100, "b"), (120, 1000, "a")]
    store(engine, *(row(engine, ago, done=done, incarnation=incarnation) for ago, done, incarnation in values))
    found = rates(engine.alias, SPANS["24h"], NOW)
    assert (found.minute["q"].done, found.minute_at) == (110, datetime(2026, 5, 6, 7, 7, tzinfo=UTC))
    just_after = rates(engine.alias, SPANS["24h"], datetime(2026, 5, 6, 7, 8, 5, tzinfo=UTC))
    assert (just_after.minute["q"].done, just_after.minute_at) == (1000, datetime(2026, 5, 6, 7, 6, tzinfo=UTC))


@pytest.mark.parametrize("name", SPANS)
def test_a_span_is_of_equal_parts_that_hold_minutes_and_longer_rows_whole(engine: Engine, name: str) -> None:
    span, start = SPANS[name], int(NOW.timestamp() - 604_800) // 3600 * 3600
    while start <= NOW.timestamp():
        age = NOW.timestamp() - start
        seconds = 3600 if age - 3600 >= 86_400 else 600 if age - 600 >= 3600 else 60
        minute = for_row(datetime.fromtimestamp(start, UTC), engine.alias)
        store(engine, row(engine, 0, minute=minute, seconds=seconds, done=seconds))
        start += seconds
    found = rates(engine.alias, span, NOW)
    assert {(part.until - part.since).total_seconds() for part in found.series} == {span.width}
    assert len(found.series) == span.seconds // span.width
    assert found.series[0].since == found.since
    assert found.series[-1].since <= NOW < found.series[-1].until
    assert {part.counted.done for part in found.series[:-1]} == {span.width}


@pytest.mark.parametrize(("ago", "width"), [(5, 60), (3500, 60), (3600, 600), (43_200, 1200), (90_000, 1200)])
def test_a_span_can_begin_at_any_time(engine: Engine, ago: int, width: int) -> None:
    store(engine, *(row(engine, ago + before) for before in (0, 60)))
    start = datetime.fromtimestamp((NOW.timestamp() - ago) // MINUTE * MINUTE, UTC)
    found = rates(engine.alias, span_since(start, NOW), NOW)
    assert (found.since, found.series[0].since, found.total.done) == (start, start, 1)
    assert {(part.until - part.since).total_seconds() for part in found.series} == {width}
    assert found.series[-1].since <= NOW < found.series[-1].until
    assert sum(part.counted.done for part in found.series) == 1


def test_the_last_minute_is_known_when_the_span_began_later(engine: Engine) -> None:
    store(engine, row(engine, 60, done=7))
    found = rates(engine.alias, span_since(NOW.replace(second=0), NOW), NOW)
    assert (found.minute["q"].done, found.total.done) == (7, 0)


def test_no_more_rows_are_read_than_the_limit_and_it_is_said_since_when_all_are(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 20)
    store(engine, *many(engine, 3))
    found = rates(engine.alias, SPANS["1h"], NOW)
    stored = Stat.objects.using(engine.alias).filter(minute__gte=for_row(found.since, engine.alias))
    assert found.is_cut
    assert found.total.done == sum(stored.values_list("done", flat=True))
    assert 0 < len(stored) < 20
    assert found.series[0].since == found.since


def test_a_day_of_12000_rows_is_read_quickly_in_one_query_by_an_index(engine: Engine) -> None:
    given = {"runs": [3] * 19, "waits": [7] * 19, "attempts": [1] * 10}
    store(engine, *(row(engine, n // 20 * 60, type=f"t{n % 20}", **given) for n in range(12_000)))
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("ANALYZE")
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with CaptureQueriesContext(connections[engine.alias]) as asked:
            found = rates(engine.alias, SPANS["24h"], NOW)
        took.append(time.perf_counter() - began)
        assert found.total.done == 12_000
        assert len(asked) == 1
    print(f"12,000 rows: {min(took) * 1000:.0f} ms")
    assert min(took) < 1.0
    if engine.name == "postgresql":
        with watched(engine.alias) as nodes:
            rates(engine.alias, SPANS["1h"], NOW)
        assert "django_jobs_stat_key" in {node.get("Index Name") for node in nodes}
        assert "Seq Scan" not in {node["Node Type"] for node in nodes}
