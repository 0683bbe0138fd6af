"""The slots of a schedule: the rules one by one, at the clock changes that show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from django_jobs.cron import Cron
from django_jobs.slots import CronSlots, EverySlots, Slot, Slots
from django_jobs.zones import zone
from tests.cron.made import SECOND, between, invented, slots, utc

pytestmark = pytest.mark.fast


# The clock jumps forward.


def test_a_reading_in_a_gap_fires_after_it_and_keeps_its_name() -> None:
    schedule = slots("30 2 * * *", "America/New_York")
    assert between(schedule, utc(2024, 3, 9, 12), utc(2024, 3, 12)) == [
        Slot(utc(2024, 3, 10, 7), datetime(2024, 3, 10, 2, 30), 0, moved=True),
        Slot(utc(2024, 3, 11, 6, 30), datetime(2024, 3, 11, 2, 30), 0, moved=False),
    ]


def test_readings_in_one_gap_are_one_slot_with_the_last_of_them() -> None:
    schedule = slots("0,30 2 * * *", "America/New_York")
    assert between(schedule, utc(2024, 3, 9, 12), utc(2024, 3, 11)) == [
        Slot(utc(2024, 3, 10, 7), datetime(2024, 3, 10, 2, 30), 0, moved=True)
    ]


def test_a_reading_due_at_the_end_of_a_gap_is_one_slot_with_those_in_it_and_did_not_move() -> None:
    schedule = slots("0 2,3 * * *", "America/New_York")
    assert between(schedule, utc(2024, 3, 9, 12), utc(2024, 3, 11)) == [
        Slot(utc(2024, 3, 10, 7), datetime(2024, 3, 10, 3), 0, moved=False)
    ]


def test_a_reading_in_a_gap_can_be_skipped() -> None:
    schedule = slots("30 2 * * *", "America/New_York", nonexistent="skip")
    assert [slot.at for slot in between(schedule, utc(2024, 3, 9), utc(2024, 3, 12))] == [
        utc(2024, 3, 9, 7, 30),
        utc(2024, 3, 11, 6, 30),
    ]


def test_a_missing_day_fires_at_its_end_and_the_next_day_as_ever() -> None:
    schedule = slots("0 12 * * *", "Pacific/Apia")
    found = between(schedule, utc(2011, 12, 29), utc(2011, 12, 31))
    assert [(slot.at, slot.reading) for slot in found] == [
        (utc(2011, 12, 29, 22), datetime(2011, 12, 29, 12)),
        (utc(2011, 12, 30, 10), datetime(2011, 12, 30, 12)),
        (utc(2011, 12, 30, 22), datetime(2011, 12, 31, 12)),
    ]


def test_every_minute_of_a_missing_day_is_one_slot() -> None:
    schedule = slots("* 0-23 * * *", "Pacific/Apia")
    found = between(schedule, utc(2011, 12, 30, 9, 58), utc(2011, 12, 30, 10, 1))
    assert [slot.reading for slot in found] == [
        datetime(2011, 12, 29, 23, 59),
        datetime(2011, 12, 31),
        datetime(2011, 12, 31, 0, 1),
    ]


# The clock falls back.


@pytest.mark.parametrize(
    ("ambiguous", "folds"), [("first", [(5, 0)]), ("second", [(6, 1)]), ("both", [(5, 0), (6, 1)])]
)
def test_a_reading_that_comes_twice_fires_as_the_policy_says(ambiguous: str, folds: list[tuple[int, int]]) -> None:
    schedule = slots("30 1 * * *", "America/New_York", ambiguous=ambiguous)
    assert between(schedule, utc(2024, 11, 3), utc(2024, 11, 4)) == [
        Slot(utc(2024, 11, 3, hour, 30), datetime(2024, 11, 3, 1, 30), fold, moved=False) for hour, fold in folds
    ]


def test_second_passes_come_in_order_after_all_first_ones() -> None:
    schedule = slots("0,30 1-2 * * *", "America/New_York", ambiguous="both")
    found = between(schedule, utc(2024, 11, 3), utc(2024, 11, 4))
    assert [(slot.at.hour, slot.at.minute, slot.fold) for slot in found] == [
        *((5, 0, 0), (5, 30, 0)),
        *((6, 0, 1), (6, 30, 1)),
        *((7, 0, 0), (7, 30, 0)),
    ]


def test_one_can_start_within_the_second_pass() -> None:
    schedule = slots("0,30 1 * * *", "America/New_York", ambiguous="both")
    moments = [utc(2024, 11, 3, 5, 30), utc(2024, 11, 3, 6), utc(2024, 11, 3, 6, 15)]
    assert [next(schedule.after(moment)).at for moment in moments] == [
        *(utc(2024, 11, 3, 6), utc(2024, 11, 3, 6, 30), utc(2024, 11, 3, 6, 30)),
    ]


def test_looking_back_from_the_second_pass_sees_the_first() -> None:
    schedule = slots("30 1 * * *", "America/New_York")
    assert next(schedule.until(utc(2024, 11, 3, 6, 15))).at == utc(2024, 11, 3, 5, 30)


def test_two_hours_and_half_an_hour_and_a_quarter_are_changes_like_others() -> None:
    troll = slots("30 1,2,4 * * *", "Antarctica/Troll")
    assert [slot.at for slot in between(troll, utc(2024, 3, 31), utc(2024, 3, 31, 12))] == [
        *(utc(2024, 3, 31, 1), utc(2024, 3, 31, 2, 30)),
    ]
    howe = slots("15 2 * * *", "Australia/Lord_Howe")
    assert [slot.at for slot in between(howe, utc(2024, 10, 5), utc(2024, 10, 6))] == [utc(2024, 10, 5, 15, 30)]
    kathmandu = slots("10 0 * * *", "Asia/Kathmandu")
    assert [slot.at for slot in between(kathmandu, utc(1985, 12, 31), utc(1986, 1, 1))] == [utc(1985, 12, 31, 18, 30)]


# Real time.


def test_real_time_neither_moves_nor_repeats_nor_swallows() -> None:
    for policy in (("skip", "first"), ("after_gap", "second")):
        schedule = slots("30 */2 * * *", "America/New_York", *policy)
        spring = between(schedule, utc(2024, 3, 10, 4), utc(2024, 3, 10, 10))
        assert [slot.at for slot in spring] == [utc(2024, 3, 10, 5, 30), utc(2024, 3, 10, 8, 30)]
        hourly = slots("@hourly", "America/New_York", *policy)
        autumn = between(hourly, utc(2024, 11, 3, 4), utc(2024, 11, 3, 7))
        assert [(slot.at.hour, slot.fold) for slot in autumn] == [(5, 0), (6, 1), (7, 0)]


# Offsets with seconds.


def test_with_an_offset_of_seconds_a_slot_is_the_first_whole_minute_that_shows_the_reading() -> None:
    # Monrovia was 44 min 30 s behind: at 06:45 UTC its clock showed 06:00:30.
    for text in ("0 6 * * *", "0 */6 * * *"):
        found = between(slots(text, "Africa/Monrovia"), utc(1971, 5, 1, 6, 44), utc(1971, 5, 1, 6, 46))
        assert found == [Slot(utc(1971, 5, 1, 6, 45), datetime(1971, 5, 1, 6), 0, moved=False)]
        assert between(slots(text, "Africa/Monrovia"), utc(1971, 5, 1, 6, 44, 50), utc(1971, 5, 1, 6, 45)) == found


def test_a_gap_that_ends_within_a_minute_fires_at_the_next_whole_one() -> None:
    found = between(slots("20 0 * * *", "Africa/Monrovia"), utc(1972, 1, 7), utc(1972, 1, 7, 1))
    assert found == [Slot(utc(1972, 1, 7, 0, 45), datetime(1972, 1, 7, 0, 20), 0, moved=True)]


def test_a_reading_comes_twice_when_only_its_last_seconds_do() -> None:
    # At midnight in UTC the clock goes back by 88 s, to 23:58:32.
    schedule = CronSlots(Cron.parse("58 23 * * *"), invented([(utc(2001, 1, 7), -88)], 0), ambiguous="both")
    reading = datetime(2001, 1, 6, 23, 58)
    assert between(schedule, utc(2001, 1, 6, 12), utc(2001, 1, 7, 12)) == [
        Slot(utc(2001, 1, 6, 23, 58), reading, 0, moved=False),
        Slot(utc(2001, 1, 7), reading, 1, moved=False),
    ]


# Moments and ends.


def test_after_is_strict_and_until_is_not() -> None:
    schedule = slots("0 6 * * *", "UTC")
    noon = utc(2024, 5, 1, 6)
    day = timedelta(days=1)
    assert [next(schedule.after(moment)).at for moment in (noon - SECOND, noon, noon + SECOND)] == [
        noon,
        noon + day,
        noon + day,
    ]
    assert [next(schedule.until(moment)).at for moment in (noon - SECOND, noon, noon + SECOND)] == [
        noon - day,
        noon,
        noon,
    ]


def test_the_zone_of_the_moment_plays_no_part_and_slots_are_in_utc() -> None:
    moment = datetime(2024, 5, 1, 3, tzinfo=zone("Asia/Tokyo"))
    for schedule in (slots("0 6 * * *", "Europe/Berlin"), EverySlots(timedelta(hours=5), moment)):
        assert next(schedule.after(moment)) == next(schedule.after(moment.astimezone(UTC)))
        assert next(schedule.after(moment)).at.tzinfo is UTC
        assert next(schedule.until(moment)).at.tzinfo is UTC


@pytest.mark.parametrize("schedule", [slots("0 6 * * *", "UTC"), EverySlots(SECOND, utc(2024, 1, 1))])
def test_a_naive_moment_is_refused_at_once(schedule: Slots) -> None:
    for ask in (schedule.after, schedule.until):
        with pytest.raises(ValueError, match=r"^2024-01-01 00:00:00 has no time zone; give an aware"):
            ask(datetime(2024, 1, 1))


@pytest.mark.parametrize("key", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Apia"])
@pytest.mark.parametrize("text", ["* * * * *", "0 0-23 * * *", "0 0 29 2 *"])
def test_beyond_the_ends_of_the_calendar_are_no_slots(key: str, text: str) -> None:
    schedule = slots(text, key)
    # With these offsets the moments lie at and outside the ends of the calendar in UTC.
    for hours in (0, 14):
        east, west = timezone(timedelta(hours=hours)), timezone(-timedelta(hours=hours))
        first, last = datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west)
        assert [slot.at for slot in schedule.until(first) if slot.at > datetime.min.replace(tzinfo=UTC)] == []
        assert list(schedule.after(last)) == []
        assert next(schedule.after(first)).at < next(schedule.until(last)).at


@pytest.mark.parametrize("key", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Apia"])
def test_near_the_ends_of_the_calendar_both_directions_agree(key: str) -> None:
    schedule = slots("*/20 0-23 * * *", key)
    day = timedelta(days=2)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert len(between(schedule, first, first + day)) > 70
    assert len(between(schedule, last - day, last)) > 70
    for hours in range(30):
        assert between(schedule, first + timedelta(hours=hours), first + day)
        assert between(schedule, last - day, last - timedelta(hours=hours))


@pytest.mark.parametrize("policy", [{"nonexistent": "before"}, {"ambiguous": "all"}, {"nonexistent": None}])
def test_an_unknown_policy_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(nonexistent|ambiguous)=.*: give one of "):
        CronSlots(Cron.parse("@daily"), zone("UTC"), **policy)


# Bounded work.


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The readings that a schedule resolves."""
    seen: list[datetime] = []
    instants = CronSlots._instants

    def counting(self: CronSlots, reading: datetime) -> list[Slot]:
        seen.append(reading)
        return instants(self, reading)

    monkeypatch.setattr(CronSlots, "_instants", counting)
    return seen


@pytest.mark.parametrize("key", ["America/New_York", "UTC", "Antarctica/Troll"])
@pytest.mark.parametrize("text", ["* * * * *", "* 0-23 * * *", "0 0 29 2 *"])
def test_the_next_and_the_newest_slot_cost_a_few_readings(key: str, text: str, looked_at: list[datetime]) -> None:
    for moment in (utc(2024, 3, 10, 6, 59), utc(2024, 7, 1), utc(2024, 11, 3, 5, 59, 59), utc(2024, 3, 31, 1)):
        looked_at.clear()
        next(slots(text, key).after(moment))
        next(slots(text, key).until(moment))
        assert len(looked_at) <= 2 * 123
    looked_at.clear()
    next(slots(text, key).after(utc(2024, 7, 1)))
    next(slots(text, key).until(utc(2024, 7, 1)))
    assert len(looked_at) <= 3


def test_a_schedule_whose_readings_all_fall_into_gaps_ends_after_decades(looked_at: list[datetime]) -> None:
    schedule = slots("30-59 2 * 3 0#2", "America/New_York", nonexistent="skip")
    assert list(schedule.after(utc(2024, 1, 1))) == []
    assert len(looked_at) <= 30 * 102
    assert looked_at[-1].year == 2085
    looked_at.clear()
    assert list(schedule.until(utc(3000, 1, 1))) == []
    assert looked_at[-1].year == 2939
    # The United States have changed their clocks on this day since 2007.
    assert next(schedule.until(utc(2024, 1, 1))).at == utc(2006, 3, 12, 7, 59)
