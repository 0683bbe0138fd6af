"""What holds for any schedule from any moment on, in real zones and in invented ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from unittest import mock

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from django_jobs.cron import Cron
from django_jobs.slots import AMBIGUOUS, NONEXISTENT, CronSlots, EverySlots, Slot, Slots
from django_jobs.zones import changes, zone
from tests.cron import oracle
from tests.cron.made import MOMENTS, ZONES, expressions, inventions, schedules

COUNT = 25
BEGIN = datetime(2001, 1, 1, tzinfo=UTC)
SPAN = timedelta(hours=8)
# Where the few invented zones change their clocks.
INVENTED = {
    "apart": inventions(BEGIN, timedelta(days=6), 60),
    "seconds": inventions(BEGIN, timedelta(days=6), 1),
    "close": inventions(BEGIN, timedelta(minutes=1), 1),
}


def first(schedule: Slots, moment: datetime, count: int = COUNT) -> list[Slot]:
    return list(islice(schedule.after(moment), count))


@st.composite
def near_changes(draw: st.DrawFn) -> tuple[CronSlots, datetime]:
    """A schedule, and a moment within half a day of a clock change of its zone, if one is ahead."""
    schedule, moment = draw(schedules()), draw(MOMENTS)
    found = changes(schedule.zone, moment, 1)
    around = timedelta(seconds=draw(st.integers(-12 * 3600, 12 * 3600)))
    return schedule, (found[0].at if found else moment) + around


@given(near_changes())
@settings(max_examples=150, deadline=None)
def test_slots_advance_and_each_is_a_reading_or_moved_from_one(case: tuple[CronSlots, datetime]) -> None:
    schedule, moment = case
    found = first(schedule, moment)
    assert all(early.at < late.at for early, late in pairwise([Slot(moment, None), *found]))
    for slot in found:
        assert slot.reading is not None
        assert slot.at.second == 0
        assert oracle.matches(schedule, slot.reading)
        local = slot.at.astimezone(schedule.zone)
        if slot.moved:
            assert schedule.nonexistent == "after_gap"
            assert not schedule.cron.follows_real_time
            assert local.replace(tzinfo=None) > slot.reading
            assert (slot.at - timedelta(minutes=1)).astimezone(schedule.zone).replace(tzinfo=None) < slot.reading
        else:
            assert local.replace(tzinfo=None, second=0, fold=0) == slot.reading
            assert local.fold == slot.fold


@given(near_changes(), st.data())
@settings(max_examples=100, deadline=None)
def test_from_any_start_the_slots_are_the_same(case: tuple[CronSlots, datetime], data: st.DataObject) -> None:
    schedule, moment = case
    found = first(schedule, moment)
    assume(len(found) > 1)
    number = data.draw(st.integers(0, len(found) - 2))
    at = found[number].at
    second = timedelta(seconds=1)
    assert first(schedule, at, COUNT - number - 1) == found[number + 1 :]
    assert first(schedule, at - second, COUNT - number) == found[number:]
    assert next(schedule.after(at + second)) == found[number + 1]


@given(near_changes())
@settings(max_examples=100, deadline=None)
def test_one_at_a_time_or_many_at_once_are_the_same(case: tuple[CronSlots, datetime]) -> None:
    schedule, moment = case
    one_by_one: list[Slot] = []
    for _ in range(COUNT):
        one_by_one += first(schedule, one_by_one[-1].at if one_by_one else moment, 1)
    assert one_by_one == first(schedule, moment)


@given(near_changes(), st.timedeltas(-timedelta(hours=2), timedelta(hours=2)))
@settings(max_examples=150, deadline=None)
def test_backwards_is_the_mirror_of_forwards(case: tuple[CronSlots, datetime], late: timedelta) -> None:
    schedule, moment = case
    found = first(schedule, moment)
    assume(found)
    end = max(found[-1].at + late, moment)
    expected = [slot for slot in first(schedule, moment, COUNT + 130) if slot.at <= end]
    assert list(islice(schedule.until(end), len(expected))) == expected[::-1]
    for slot in islice(schedule.until(end), len(expected), len(expected) + 1):
        assert slot.at <= moment


@contextmanager
def host_in(name: str) -> Iterator[None]:
    try:
        with mock.patch.dict(os.environ, {"TZ": name}):
            time.tzset()
            yield
    finally:
        time.tzset()


@given(near_changes())
@settings(max_examples=30, deadline=None)
def test_the_zone_of_the_host_plays_no_part(case: tuple[CronSlots, datetime]) -> None:
    schedule, moment = case
    found, hosts = set(), set()
    for name in ("UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe"):
        with host_in(name):
            hosts.add(time.timezone)
            found.add((*first(schedule, moment), *islice(schedule.until(moment), COUNT)))
    assert (len(found), len(hosts)) == (1, 4)


def assert_like_the_oracle(schedule: CronSlots, moment: datetime) -> None:
    low, high = moment - SPAN, moment + SPAN
    clock = oracle.Clock.of(schedule.zone, low - oracle.MARGIN, high + oracle.MARGIN)
    expected = [found for found in oracle.slots(clock, schedule).items() if low < found[0] <= high]
    found = [(slot.at, slot.reading) for slot in first(schedule, low, len(expected) + 1)]
    assert [slot for slot in found if slot[0] <= high] == expected
    back = [(slot.at, slot.reading) for slot in islice(schedule.until(high), len(expected) + 1)]
    assert [slot for slot in back if slot[0] > low] == expected[::-1]


@given(st.sampled_from(ZONES), MOMENTS, expressions())
@settings(max_examples=25, deadline=None)
def test_around_a_clock_change_the_slots_are_those_of_a_walk_through_every_minute(
    key: str, moment: datetime, text: str
) -> None:
    found = changes(zone(key), moment, 1)
    at = (found[0].at if found else moment).replace(second=0, microsecond=0)
    for nonexistent in NONEXISTENT:
        for ambiguous in AMBIGUOUS:
            assert_like_the_oracle(CronSlots(Cron.parse(text), zone(key), nonexistent, ambiguous), at)


@given(schedules(INVENTED["apart"] | INVENTED["seconds"]), st.integers(-36 * 60, 36 * 60))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_change_of_any_size_at_any_second_follows_the_rules(schedule: CronSlots, minutes: int) -> None:
    for change in changes(schedule.zone, BEGIN, 1):
        assert_like_the_oracle(schedule, change.at.replace(second=0) + timedelta(minutes=minutes))


@given(schedules(INVENTED["close"]), st.integers(0, 600))
@settings(max_examples=60, deadline=None)
def test_where_the_clock_changes_all_the_time_slots_still_advance(schedule: CronSlots, minutes: int) -> None:
    moment = BEGIN + timedelta(minutes=minutes)
    found = first(schedule, moment, 200)
    assert all(early.at < late.at for early, late in pairwise([Slot(moment, None), *found]))
    back = list(islice(schedule.until(moment), 200))
    assert back[0].at <= moment
    assert all(late.at > early.at for late, early in pairwise(back))


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=3650)), MOMENTS, MOMENTS)
@settings(max_examples=100, deadline=None)
def test_an_interval_is_the_same_in_both_directions_and_from_any_start(
    every: timedelta, anchor: datetime, moment: datetime
) -> None:
    schedule = EverySlots(every, anchor)
    found = first(schedule, moment, 9)
    assert moment < found[0].at <= max(moment + every, anchor)
    assert all(late.at - early.at == every for early, late in pairwise(found))
    assert first(schedule, found[3].at, 5) == found[4:]
    assert list(islice(schedule.until(found[-1].at), 9)) == found[::-1]
    assert all((slot.at - anchor) % every == timedelta(0) for slot in found)
