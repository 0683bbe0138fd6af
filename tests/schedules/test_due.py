"""What becomes of slots: one rule each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs.cron import Cron
from django_jobs.schedules import due
from django_jobs.schedules.due import Fire, Past, decide
from django_jobs.slots import CronSlots, EverySlots, Slot
from django_jobs.zones import zone
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND
from tests.schedules.lives import Life, lived, rules

pytestmark = pytest.mark.fast

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def minutes(*ago: float) -> list[datetime]:
    return [NOW - number * MINUTE for number in ago]


def each_minute(ago: timedelta = DAY) -> EverySlots:
    return EverySlots(MINUTE, NOW - ago)


def test_a_slot_that_is_a_moment_too_late_is_missed_and_one_that_is_not_fires() -> None:
    slots = each_minute()
    past = Past(since=NOW - 90 * SECOND)
    for grace, fires in ((MINUTE, minutes(1, 0)), (MINUTE - timedelta.resolution, minutes(0))):
        found = decide(slots, rules(grace=grace, limit=0), past, NOW)
        assert [fire.at for fire in found.fire] == fires
        assert found.missed == 2 - len(fires)


@pytest.mark.parametrize(("limit", "fires"), [(0, []), (1, [0]), (5, [4, 3, 2, 1, 0])])
def test_of_missed_slots_the_newest_fire_the_oldest_first_and_the_others_are_counted(
    limit: int, fires: list[float]
) -> None:
    found = decide(each_minute(), rules(limit=limit, grace=SECOND), Past(since=NOW - HOUR), NOW + 30 * SECOND)
    assert [(fire.at, fire.late) for fire in found.fire] == [(at, True) for at in minutes(*fires)]
    assert (found.missed, found.dropped) == (60, 60 - len(fires))


def test_what_is_in_time_is_part_of_the_limit_of_what_is_missed() -> None:
    found = decide(each_minute(), rules(limit=1), Past(since=NOW - HOUR), NOW)
    assert [fire.at for fire in found.fire] == minutes(1, 0)
    assert found.dropped == 58


def test_what_cannot_be_made_at_once_is_made_by_the_next_decision_and_nothing_is_counted_twice() -> None:
    life = Life(each_minute(), rules(limit=100, at_once=1), NOW - 4 * HOUR, since=NOW - 4 * HOUR, now=NOW)
    life.tick()
    assert [fire.at for fire in life.fired] == minutes(*range(99, -1, -1))
    assert (life.dropped, life.missed) == (140, 238)


def test_slots_that_come_with_one_that_waited_are_not_passed_when_only_one_job_can_be_made_at_once() -> None:
    past = Past(since=NOW - 150 * SECOND, pending=NOW - HOUR)
    found = decide(each_minute(), rules(overlap="queue", at_once=1), past, NOW)
    assert [fire.at for fire in found.fire] == [NOW - HOUR]
    assert found.next is not None
    assert (found.last and found.last.at, found.dropped, found.next.at) == (NOW - 2 * MINUTE, 1, NOW - MINUTE)


def test_of_slots_that_wait_for_the_run_before_them_the_latest_is_kept() -> None:
    past = Past(since=NOW - 150 * SECOND, busy=True, pending=NOW - HOUR)
    found = decide(each_minute(), rules(overlap="queue", grace=HOUR), past, NOW)
    assert (found.fire, found.pending, found.skipped) == ([], NOW, 3)
    found = decide(each_minute(), rules(overlap="queue"), Past(since=NOW, pending=NOW), NOW + SECOND)
    assert (found.fire, found.pending) == ([Fire(at=NOW, late=True)], None)


def test_a_slot_that_waits_does_so_no_longer_when_runs_may_overlap() -> None:
    found = decide(each_minute(), rules(), Past(since=NOW - SECOND, busy=True, pending=NOW - MINUTE), NOW)
    assert [fire.at for fire in found.fire] == minutes(1, 0)


def test_a_year_of_seconds_is_counted_without_going_through_it() -> None:
    seen: list[int] = []
    slots = EverySlots(SECOND, NOW - 365 * DAY)
    found = decide(counted(slots, seen), rules(limit=5), Past(since=NOW - 364 * DAY), NOW)
    assert len(found.fire) == 61
    assert (found.missed, found.dropped) == (364 * 86400 - 61, 364 * 86400 - 61)
    assert sum(seen) < 200


def counted(slots: EverySlots, seen: list[int]) -> EverySlots:
    """Return these slots, each of which is counted when it is looked at."""

    class Counted(EverySlots):
        def _from(self, number: int, step: int) -> Any:
            for slot in EverySlots._from(self, number, step):
                seen.append(1)
                yield slot

    return Counted(slots.every, slots.anchor)


def test_minutes_of_years_are_gone_through_up_to_a_bound_and_all_are_passed() -> None:
    slots = CronSlots(Cron.parse("* * * * *"), zone("UTC"))
    found = decide(slots, rules(limit=1, grace=SECOND), Past(since=NOW - 400 * DAY), NOW + 30 * SECOND)
    assert [fire.at for fire in found.fire] == [NOW]
    assert found.dropped == due.MOST_COUNTED - 1
    assert found.next is not None
    assert found.next.at == NOW + MINUTE


def test_more_in_time_than_one_decision_looks_at_are_all_made() -> None:
    many = due.MOST_IN_TIME + 100
    slots = EverySlots(SECOND, NOW - DAY)
    life = Life(slots, rules(grace=DAY), NOW - many * SECOND, since=NOW - many * SECOND, now=NOW)
    life.tick()
    assert len(life.fired) == many
    assert life.missed == 0


def test_the_end_of_the_calendar_is_no_error() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    found = decide(CronSlots(Cron.parse("0 0 1 1 *"), zone("UTC")), rules(), Past(since=end - HOUR), end)
    assert (found.fire, found.next, found.last) == ([], None, None)


# By other data of the zone.

EST = CronSlots(Cron.parse("30 2 * * *"), zone("Etc/GMT+5"))
AST = CronSlots(Cron.parse("30 2 * * *"), zone("Etc/GMT+4"))
READING = datetime(2026, 11, 30, 2, 30)
AT_EST, AT_AST = datetime(2026, 11, 30, 7, 30, tzinfo=UTC), datetime(2026, 11, 30, 6, 30, tzinfo=UTC)


def test_an_occurrence_that_was_had_is_passed_over_when_other_data_has_it_later() -> None:
    past = Past(since=AT_AST, reading=READING, planned=AT_AST + DAY)
    found = decide(EST, rules(), past, AT_EST + SECOND)
    assert (found.fire, found.missed, found.last) == ([], 0, None)
    assert found.next is not None
    assert found.next.at == AT_EST + DAY


@pytest.mark.parametrize(("planned_in", "fires"), [(SECOND, True), (-MINUTE, True), (-61 * SECOND, False)])
def test_an_occurrence_that_other_data_had_planned_for_now_is_in_time(planned_in: timedelta, fires: bool) -> None:
    now = AT_EST
    past = Past(since=AT_EST - DAY, reading=READING - DAY, planned=now + planned_in)
    found = decide(AST, rules(limit=0), past, now)
    assert [fire.at for fire in found.fire] == ([AT_AST] if fires else [])
    assert found.missed == (not fires)


def night(both: bool) -> CronSlots:
    return CronSlots(Cron.parse("* 0-23 * * *"), zone("UTC"), ambiguous="both" if both else "first")


@pytest.mark.parametrize(
    ("slot", "had"),
    [
        ((READING, 0), True),
        ((READING, 1), True),
        ((READING + MINUTE, 1), False),
        ((READING - MINUTE, 0), True),
        ((READING - MINUTE, 1), True),
    ],
)
def test_all_local_times_up_to_the_second_pass_of_the_last_one_were_had(slot: tuple[datetime, int], had: bool) -> None:
    past = Past(since=NOW, reading=READING, fold=1)
    for both in (False, True):
        assert due._had(Slot(NOW, *slot), night(both), past) is had


def test_a_second_pass_is_another_occurrence_where_both_are_wanted_and_else_is_not() -> None:
    past = Past(since=NOW, reading=READING, fold=0)
    second = Slot(NOW, READING - MINUTE, 1)
    assert not due._had(second, night(True), past)
    assert due._had(second, night(False), past)
    assert due._had(Slot(NOW, READING - MINUTE, 0), night(True), past)


def test_a_last_local_time_far_ahead_of_all_that_come_is_an_error_and_no_endless_search() -> None:
    slots = CronSlots(Cron.parse("* 0-23 * * *"), zone("UTC"))
    with pytest.raises(due.TooManyPassedOver, match="is far ahead of its next ones"):
        decide(slots, rules(), Past(since=NOW, reading=READING + 9 * DAY), NOW)


def test_one_step_is_as_good_as_many() -> None:
    made, ruled = (EST, AT_EST - 3 * DAY), rules(grace=SECOND, limit=100)
    small = lived(made, ruled, [(600.0, True)] * (6 * 144))
    large = lived(made, ruled, [(600.0 * 6 * 144, True)])
    assert [fire.at for fire in small.fired] == [fire.at for fire in large.fired] == small.planned()
    assert len(small.fired) == 6
