"""What becomes of slots, whatever the ticks: against a naive model and by what must hold of every decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.cron import Cron
from django_jobs.schedules import due
from django_jobs.schedules.due import Fire, Past, Rules, decide
from django_jobs.slots import CronSlots, EverySlots, Slot
from django_jobs.zones import zone
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND

if TYPE_CHECKING:
    from django_jobs.slots import Slots

pytestmark = pytest.mark.fast

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
# Before nights on which the clocks change, there or there.
STARTS = [datetime(2026, 3, 28, 20, 17, 3, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC), NOW]
EXPRESSIONS = ["* * * * *", "*/7 1-3 * * *", "30 2 * * *", "0 */2 * * *", "0 0-23 * * *", "15,45 2 * * *"]
ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "UTC"]


def rules(**values: Any) -> Rules:
    usual = {"grace": MINUTE, "limit": 1, "window": None, "overlap": "allow", "at_once": 1000, "both_passes": False}
    return Rules(**{**usual, **values})


def minutes(*ago: float) -> list[datetime]:
    return [NOW - number * MINUTE for number in ago]


def each_minute(ago: timedelta = DAY) -> EverySlots:
    return EverySlots(MINUTE, NOW - ago)


def naive(planned: list[datetime], rules: Rules, past: Past, now: datetime) -> tuple[Any, ...]:
    """Decide by going through the list of slots; without a limit to what is made at once."""
    come = [at for at in planned if past.since < at <= now]
    in_time = [at for at in come if now - at <= rules.grace]
    late = [at for at in come if now - at > rules.grace]
    kept = [at for at in late if rules.window is None or now - at <= rules.window]
    kept = kept[max(0, len(kept) - max(0, rules.limit - len(in_time))) :]
    fire, skipped, pending, busy = [], 0, past.pending, past.busy
    if pending and (not busy or rules.overlap == "allow"):
        fire, pending, busy = [Fire(at=pending, late=True)], None, True
    for at in kept + in_time:
        if rules.overlap == "allow" or not busy:
            fire.append(Fire(at=at, late=at in late))
            busy = True
        elif rules.overlap == "skip":
            skipped += 1
        else:
            skipped += pending is not None
            pending = at
    last = come[-1] if come else None
    following = next((at for at in planned if at > (last or past.since)), None)
    return fire, pending, last, following, len(late), skipped, len(late) - len(kept)


def shape(found: due.Decision) -> tuple[Any, ...]:
    last, following = found.last and found.last.at, found.next and found.next.at
    return found.fire, found.pending, last, following, found.missed, found.skipped, found.dropped


some_slots = st.one_of(
    st.builds(
        lambda start, seconds, before: (EverySlots(timedelta(seconds=seconds), start - before * SECOND), start),
        st.sampled_from(STARTS),
        st.sampled_from([31.5, 60, 600, 7200]),
        st.integers(-5000, 5000),
    ),
    st.builds(
        lambda text, key, ambiguous, start: (
            CronSlots(Cron.parse(text), zone(key), ambiguous=ambiguous),
            start,
        ),
        st.sampled_from(EXPRESSIONS),
        st.sampled_from(ZONES),
        st.sampled_from(["first", "second", "both"]),
        st.sampled_from(STARTS),
    ),
)
some_rules = st.builds(
    rules,
    grace=st.sampled_from([0 * SECOND, SECOND, MINUTE, HOUR, DAY]),
    limit=st.sampled_from([0, 1, 2, 5, 100]),
    window=st.sampled_from([None, SECOND, HOUR]),
    overlap=st.sampled_from(["allow", "skip", "queue"]),
    at_once=st.sampled_from([1, 2, 1000, 1000]),
)
# How much later the next tick comes, in seconds, and whether the job before has ended then.
some_ticks = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 90), st.floats(90, 4000), st.floats(4000, 30_000), st.floats(-4000, 0)), st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@dataclass
class Life:
    """A schedule over many ticks: what is kept of it, and all that came of its slots."""

    slots: Slots
    rules: Rules
    start: datetime
    since: datetime
    now: datetime
    last: Slot | None = None
    pending: datetime | None = None
    busy: bool = False
    fired: list[Fire] = field(default_factory=list)
    skipped: int = 0
    dropped: int = 0
    missed: int = 0

    def past(self) -> Past:
        by_wall_clock = isinstance(self.slots, CronSlots) and not self.slots.cron.follows_real_time
        reading = self.last.reading if self.last and by_wall_clock else None
        fold = self.last.fold if self.last else 0
        return Past(since=self.since, reading=reading, fold=fold, pending=self.pending, busy=self.busy)

    def tick(self) -> None:
        """Decide until nothing is due, as ticks do that come at once."""
        for _ in range(100_000):
            found = decide(self.slots, self.rules, self.past(), self.now)
            self.take(found)
            if found.next is None or found.next.at > self.now:
                return
            assert found.fire or found.last, "a tick that decides nothing would be made for ever"
        raise AssertionError("ticks without end")

    def take(self, found: due.Decision) -> None:
        assert len(found.fire) <= self.rules.at_once
        if found.last is not None:
            assert self.since < found.last.at <= self.now
            self.last, self.since = found.last, found.last.at
        self.pending = found.pending
        self.busy = self.busy or bool(found.fire)
        self.fired += found.fire
        self.skipped += found.skipped
        self.dropped += found.dropped
        self.missed += found.missed

    def planned(self) -> list[datetime]:
        return [slot.at for slot in takewhile(lambda slot: slot.at <= self.since, self.slots.after(self.start))]


def lived(made: tuple[Slots, datetime], ruled: Rules, ticks: list[tuple[float, bool]]) -> Life:
    slots, start = made
    life = Life(slots, ruled, start, since=start, now=start)
    for seconds, ended in ticks:
        life.now += timedelta(seconds=seconds)
        life.busy = life.busy and not ended
        life.tick()
    return life


quick = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(some_slots, some_rules, some_ticks)
def test_of_every_slot_one_thing_becomes_once_and_in_order(
    made: tuple[Slots, datetime], ruled: Rules, ticks: list[tuple[float, bool]]
) -> None:
    life = lived(made, ruled, ticks)
    planned = life.planned()
    fired = [fire.at for fire in life.fired]
    assert all(before < after for before, after in pairwise(fired)), "fired twice, or a newer one before an older one"
    assert set(fired) <= set(planned)
    assert len(fired) + life.skipped + life.dropped + (life.pending is not None) == len(planned)
    if life.pending is not None:
        assert life.pending in planned
        assert life.pending not in fired
    if ruled.overlap == "allow":
        assert life.skipped == 0
    due_now = list(takewhile(lambda slot: slot.at <= life.now, life.slots.after(life.since)))
    assert due_now == [], "a slot that has come was left"


@quick
@given(some_slots, some_rules, some_ticks)
def test_a_decision_is_what_going_through_the_list_gives(
    made: tuple[Slots, datetime], ruled: Rules, ticks: list[tuple[float, bool]]
) -> None:
    slots, start = made
    ruled = rules(grace=ruled.grace, limit=ruled.limit, window=ruled.window, overlap=ruled.overlap, at_once=10**9)
    life = Life(slots, ruled, start, since=start, now=start)
    latest = start + timedelta(seconds=sum(max(seconds, 0) for seconds, _ended in ticks))
    planned = [slot.at for slot in takewhile(lambda slot: slot.at <= latest + 3 * DAY, slots.after(start))]
    for seconds, ended in ticks:
        life.now += timedelta(seconds=seconds)
        life.busy = life.busy and not ended
        found = decide(slots, ruled, life.past(), life.now)
        assert shape(found) == naive(planned, ruled, life.past(), life.now)
        life.take(found)


@quick
@given(some_slots, some_rules, some_ticks)
def test_what_is_in_time_fires_and_what_is_late_keeps_to_the_limit_and_the_window(
    made: tuple[Slots, datetime], ruled: Rules, ticks: list[tuple[float, bool]]
) -> None:
    slots, start = made
    ruled = rules(grace=ruled.grace, limit=ruled.limit, window=ruled.window, at_once=ruled.at_once)
    life = Life(slots, ruled, start, since=start, now=start)
    for seconds, _ended in ticks:
        life.now += timedelta(seconds=seconds)
        come = [slot.at for slot in takewhile(lambda slot: slot.at <= life.now, slots.after(life.since))]
        before = len(life.fired)
        life.tick()
        fired = life.fired[before:]
        late = [fire.at for fire in fired if fire.late]
        assert {at for at in come if life.now - at <= ruled.grace} == {fire.at for fire in fired if not fire.late}
        assert len(late) <= ruled.limit
        assert all(life.now - at <= (ruled.window or DAY * 9999) for at in late)
    assert life.missed == len([fire for fire in life.fired if fire.late]) + life.dropped


# One thing each.


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
        assert due._had(Slot(NOW, *slot), rules(both_passes=both), past) is had


def test_a_second_pass_is_another_occurrence_where_both_are_wanted_and_else_is_not() -> None:
    past = Past(since=NOW, reading=READING, fold=0)
    second = Slot(NOW, READING - MINUTE, 1)
    assert not due._had(second, rules(both_passes=True), past)
    assert due._had(second, rules(both_passes=False), past)
    assert due._had(Slot(NOW, READING - MINUTE, 0), rules(both_passes=True), past)


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
