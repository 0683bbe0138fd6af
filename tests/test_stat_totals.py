"""Sums that only grow, whatever becomes of the minutes that they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from django_jobs.models import Stat, StatTotal
from django_jobs.queue import stat_totals, stats
from tests.engines.common import beside_others, on_postgresql
from tests.test_stats import make
from tests.threads import session, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = beside_others


def sums(engine: Engine) -> list[tuple[Any, ...]]:
    return [(row.queue, row.type, row.done, row.run_seconds, row.runs, row.waits) for row in stat_totals.totals(engine)]


def test_sums_are_the_same_when_minutes_are_folded_and_when_they_are_forgotten(engine: Engine) -> None:
    make(engine, 40, run_seconds=1.5)
    make(engine, 40, incarnation="b2", runs=[5])
    make(engine, 31, type="u", slots_missed=2)
    make(engine, 0.01, run_seconds=2)
    before = sums(engine)
    assert before == [
        ("default", "t", 9, 3.5, [7, 4, 0], [0, 0, 9]),
        ("default", "u", 3, 0.0, [1, 2, 0], [0, 0, 3]),
    ]
    assert stat_totals.totals(engine)[1].slots_missed == 2
    while stats.fold(engine):
        pass
    assert sums(engine) == before
    assert stats.forget(engine, 30 * 86400.0) > 0
    assert Stat.objects.using(engine.alias).count() == 1
    assert sums(engine) == before


def test_what_is_folded_later_is_added_to_what_was_folded_before(engine: Engine) -> None:
    for incarnation in ("a1", "b2"):
        make(engine, 2, incarnation=incarnation)
        stats.fold(engine)
        assert stats.fold(engine) == 0
    assert [row[2] for row in sums(engine)] == [6]
    assert StatTotal.objects.using(engine.alias).get().done == 6


@on_postgresql
def test_two_who_fold_at_once_lose_nothing_of_a_sum(engine: Engine) -> None:
    make(engine, 4)
    stats.fold(engine)  # so that there is a sum
    make(engine, 2)
    with session(engine.alias) as other:
        with transaction.atomic(using=engine.alias):
            assert stats.fold(engine) == 1
            other.do(lambda: make(engine, 3))
            folding = other.start(lambda: stats.fold(engine))
            wait_for_blocked()
        assert folding.result(30) == 1
    assert [row[2] for row in sums(engine)] == [9]
