"""The slots of a fixed interval."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import pytest

from django_jobs.slots import EverySlots, Slot
from tests.cron.made import SECOND, between, utc

pytestmark = pytest.mark.fast


def test_the_slots_of_an_interval_are_its_multiples_from_the_anchor_on() -> None:
    anchor = utc(2024, 5, 1, 0, 0, 7)
    hour = timedelta(hours=1)
    schedule = EverySlots(hour, anchor)
    assert between(schedule, anchor - hour, anchor + 2 * hour) == [
        Slot(anchor + number * hour, None) for number in range(3)
    ]
    assert [slot.at for slot in islice(schedule.after(anchor), 2)] == [anchor + hour, anchor + 2 * hour]
    assert [slot.at for slot in schedule.until(anchor + hour + SECOND)] == [anchor + hour, anchor]
    assert list(schedule.until(anchor - SECOND)) == []
    assert next(schedule.after(utc(1970, 1, 1))) == Slot(anchor, None)


def test_an_interval_is_exact_after_any_time() -> None:
    third = timedelta(seconds=1, microseconds=333_333)
    schedule = EverySlots(third, utc(1970, 1, 1))
    number = 10**12
    at = utc(1970, 1, 1) + number * timedelta(microseconds=1)
    assert next(schedule.after(at)).at == utc(1970, 1, 1) + (number // 1_333_333 + 1) * third


def test_an_interval_ends_silently_with_the_calendar() -> None:
    schedule = EverySlots(timedelta(days=3650), utc(9980, 1, 1))
    assert [slot.at.year for slot in schedule.after(utc(9980, 1, 1))] == [9989, 9999]
    assert list(EverySlots(timedelta.max, utc(2024, 1, 1)).after(utc(2024, 1, 1))) == []


@pytest.mark.parametrize("every", [timedelta(0), -SECOND])
def test_an_interval_that_does_not_advance_is_refused(every: timedelta) -> None:
    with pytest.raises(ValueError, match=r"^every=.*: give a timedelta above 0\.$"):
        EverySlots(every, utc(2024, 1, 1))


def test_a_naive_anchor_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        EverySlots(SECOND, datetime(2024, 1, 1))
