"""What a clock change does to a schedule, as previews say it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from django_jobs.slots import EverySlots, Touched, touched
from django_jobs.zones import changes, zone
from tests.cron.made import SECOND, slots, utc

pytestmark = pytest.mark.fast

SPRING, AUTUMN = changes(zone("Europe/Berlin"), utc(2024, 1, 1), 2)


@pytest.mark.parametrize(
    ("text", "policy", "spring", "autumn"),
    [
        ("30 2 * * *", {}, "moved", "first only"),
        ("30 2 * * *", {"nonexistent": "skip", "ambiguous": "second"}, "skipped", "second only"),
        ("30 2 * * *", {"ambiguous": "both"}, "moved", "doubled"),
    ],
)
def test_a_change_says_what_becomes_of_the_readings_in_it(
    text: str, policy: dict[str, Any], spring: Any, autumn: Any
) -> None:
    schedule = slots(text, "Europe/Berlin", **policy)
    assert touched(schedule, SPRING) == Touched(spring, 1, [datetime(2024, 3, 31, 2, 30)])
    assert touched(schedule, AUTUMN) == Touched(autumn, 1, [datetime(2024, 10, 27, 2, 30)])


@pytest.mark.parametrize("text", ["0 3 * * *", "59 1 * * *", "30 2 * 5 *", "* * * * *", "30 */2 * * *"])
def test_what_no_change_touches_is_unaffected(text: str) -> None:
    for change in (SPRING, AUTUMN):
        assert touched(slots(text, "Europe/Berlin"), change) == Touched("unaffected", 0, [])
    assert touched(EverySlots(SECOND, utc(2024, 1, 1)), SPRING) == Touched("unaffected", 0, [])


def test_of_many_readings_in_a_change_the_first_few_are_shown() -> None:
    (apia,) = changes(zone("Pacific/Apia"), utc(2011, 12, 1), 1)
    found = touched(slots("* 0-23 * * *", "Pacific/Apia"), apia)
    assert (found.effect, found.count) == ("moved", 1440)
    assert found.examples == [datetime(2011, 12, 30, 0, minute) for minute in range(5)]
