"""What becomes of slots, whatever the ticks: by what must hold of every decision, and against a naive model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.cron import Cron
from django_jobs.schedules.due import Decision, Fire, Past, Rules, decide
from django_jobs.slots import CronSlots, EverySlots
from django_jobs.zones import zone
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND
from tests.schedules.lives import Life, lived, rules

if TYPE_CHECKING:
    from django_jobs.slots import Slots

pytestmark = pytest.mark.fast

# Before nights on which the clocks change, there or there.
STARTS = [
    datetime(2026, 3, 28, 20, 17, 3, tzinfo=UTC),
    datetime(2026, 10, 24, 20, tzinfo=UTC),
    datetime(2026, 11, 30, 12, tzinfo=UTC),
]
EXPRESSIONS = ["* * * * *", "*/7 1-3 * * *", "30 2 * * *", "0 */2 * * *", "0 0-23 * * *", "15,45 2 * * *"]
ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "UTC"]


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


def shape(found: Decision) -> tuple[Any, ...]:
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
        found = decide(slots, life.rules, life.past(), life.now)
        assert shape(found) == naive(planned, life.rules, life.past(), life.now)
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
