from __future__ import annotations

import pytest

from django_jobs.engines.values import Claimed, Done, Run, Settlement
from django_jobs.workers.ended import PART_CHARACTERS, Ended, parts

pytestmark = pytest.mark.fast


def ended(number: int, outcome: Done | Settlement) -> Ended:
    claimed = Claimed(number, 1, "w:1", "t", "{}", 0, 8, None, None, None)
    return Ended(number, claimed, outcome, 0.0)


def done(number: int, characters: int) -> Ended:
    return ended(number, Done(Run(number, 1, "w:1"), "x" * characters))


def test_a_batch_is_parted_by_kind_and_keeps_its_order() -> None:
    failed = ended(2, Settlement(Run(2, 1, "w:1"), "failed", "end", "failed"))
    assert parts([done(1, 5), failed, done(3, 5)]) == [[done(1, 5), done(3, 5)], [failed]]
    assert parts([]) == []


def test_large_results_are_spread_over_statements() -> None:
    half = PART_CHARACTERS // 2
    batch = [done(number, half) for number in range(5)]
    assert [len(part) for part in parts(batch)] == [2, 2, 1]
