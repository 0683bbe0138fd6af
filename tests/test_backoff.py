from __future__ import annotations

import random
from typing import Any

import pytest

from django_jobs import Backoff, InvalidJob

pytestmark = pytest.mark.fast


def test_the_longest_wait_grows_by_the_factor_up_to_the_cap() -> None:
    backoff = Backoff(base=2, factor=3, cap=300)
    assert [backoff.ceiling(attempts) for attempts in range(1, 9)] == [2, 6, 18, 54, 162, 300, 300, 300]


def test_a_constant_factor_keeps_the_base() -> None:
    assert [Backoff(base=7, factor=1, cap=300).ceiling(attempts) for attempts in (1, 2, 5_000)] == [7, 7, 7]


def test_a_base_over_the_cap_is_cut_to_it() -> None:
    assert [Backoff(base=900, factor=2, cap=60).ceiling(attempts) for attempts in (1, 2)] == [60, 60]


def test_a_base_of_zero_never_waits() -> None:
    assert [Backoff(base=0).ceiling(attempts) for attempts in (1, 2, 100_000)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("backoff", "longest"),
    [
        (Backoff(), 300),
        (Backoff(base=5e-324, factor=1e8), 300),
        (Backoff(base=1, factor=1.0000001, cap=2), 2),
        (Backoff(base=3, factor=315_360_000, cap=315_360_000), 315_360_000),
    ],
)
def test_a_million_attempts_do_not_overflow(backoff: Backoff, longest: float) -> None:
    assert backoff.ceiling(100_000_000) == longest


def test_the_wait_is_drawn_between_zero_and_the_longest() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high / 4

    assert Backoff(base=2, factor=3).delay(3, uniform) == 4.5
    assert drawn == [(0.0, 18.0)]


def test_the_jitter_is_full() -> None:
    random.seed(5)
    waits = [Backoff(base=2, factor=3).delay(2) for _ in range(2_000)]
    assert min(waits) < 0.1
    assert max(waits) > 5.9
    assert 2.8 < sum(waits) / len(waits) < 3.2


def test_eight_attempts_by_default_last_about_seven_minutes() -> None:
    assert sum(Backoff().ceiling(attempts) for attempts in range(1, 8)) / 2 == 421


@pytest.mark.parametrize("name", ["base", "factor", "cap"])
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1, True, "2", None, 10**400, pytest.param(10**5000, id="digits")]
)
def test_a_number_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidJob, match=rf"^Backoff\({name}=.*\): give a number from [01] to 315,360,000\.$"):
        Backoff(**{name: value})


def test_a_factor_that_shrinks_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"^Backoff\(factor=0.5\): give a number from 1 to 315,360,000\.$"):
        Backoff(factor=0.5)
