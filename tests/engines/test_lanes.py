"""Which jobs of which lanes a claim takes, and what the share of those due longest comes to."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_jobs import pause
from django_jobs.engines.values import Lane
from django_jobs.workers.lanes import Lanes
from tests.app.jobs import nothing
from tests.engines.common import LANES, TYPES, alone, beside_others, claim, clock, ids, on_postgresql, order
from tests.threads import session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

URGENT, NORMAL, BULK = (Lane("default", priority, 0.0, 0) for priority in (10, 0, -10))


def due(engine: Engine, *seconds_ago: float, **options: Any) -> list[int]:
    """Enqueue a job for each of these times; return their ids."""
    now = clock(engine)
    return [nothing.using(run_at=now - timedelta(seconds=ago), **options).enqueue().pk for ago in seconds_ago]


@alone
def test_lanes_are_served_in_the_order_given_and_each_by_due_time(engine: Engine) -> None:
    normal, bulk, other = (
        due(engine, 5, 9, 7),
        due(engine, 50, priority=-10),
        due(engine, 90, 80, queue="b", priority=5),
    )
    lanes = (BULK, Lane("b", 5, 0.0, 0), NORMAL)
    assert ids(claim(engine, 5, lanes=lanes)) == [*bulk, *other, normal[1], normal[2]]
    assert ids(claim(engine, 5, lanes=lanes)) == [normal[0]]


@alone
def test_nothing_is_taken_from_a_lane_that_is_not_given(engine: Engine) -> None:
    due(engine, 9, priority=10)
    normal = due(engine, 5)
    assert ids(claim(engine, 5, lanes=(NORMAL,))) == normal
    assert ids(claim(engine, 5, lanes=())) == []


@alone
def test_so_many_of_a_claim_are_those_due_longest_of_all_lanes(engine: Engine) -> None:
    urgent = due(engine, *range(10, 0, -1), priority=10)
    normal, bulk = due(engine, 100, 60, 20), due(engine, 90, 30, priority=-10)
    lanes = (URGENT, NORMAL, BULK)
    # 100 and 60 s of the one and 90 s of the other; what is taken is given in the order of the lanes.
    assert ids(claim(engine, 7, lanes=lanes, oldest=3)) == [*urgent[:4], *normal[:2], bulk[0]]
    assert ids(claim(engine, 1, lanes=lanes, oldest=1)) == [bulk[1]]
    assert ids(claim(engine, 2, lanes=lanes)) == urgent[4:6]


@alone
def test_the_share_of_the_oldest_costs_the_highest_lane_nothing_where_it_has_them_itself(engine: Engine) -> None:
    urgent, normal = due(engine, 90, 80, 70, 60, priority=10), due(engine, 50)
    assert ids(claim(engine, 4, lanes=(URGENT, NORMAL), oldest=2)) == urgent
    assert ids(claim(engine, 4, lanes=(URGENT, NORMAL), oldest=2)) == normal


@alone
def test_where_fewer_are_due_than_asked_for_each_is_taken_once(engine: Engine) -> None:
    urgent, normal = due(engine, 5, 4, priority=10), due(engine, 9, 8)
    assert ids(claim(engine, 100, lanes=(URGENT, NORMAL), oldest=25)) == [*urgent, *normal]


@alone
@on_postgresql
def test_a_claim_begins_at_the_place_it_is_given_and_a_look_at_the_beginning(engine: Engine) -> None:
    first, second, third = due(engine, 30, 20, 10)
    (lane,) = engine.look(None, TYPES).lanes
    assert (lane.queue, lane.priority, lane.id) == ("default", 0, first)
    (seen,) = claim(engine, 1, lanes=(lane,))
    assert (seen.id, seen.due) == (first, lane.due)
    assert engine.next_due((lane,)) == 0
    middle = lane._replace(due=lane.due + 15)
    assert ids(claim(engine, 5, lanes=(middle,))) == [third]
    assert engine.next_due((middle,)) is None
    found = engine.look(None, TYPES)
    assert [lane.id for lane in found.lanes] == [second]
    assert found.now == pytest.approx(clock(engine).timestamp(), abs=5)
    # The place of a row is exact: it is among those from there on, and the one before it is not.
    assert ids(claim(engine, 5, lanes=found.lanes)) == [second]


@alone
@on_postgresql
def test_of_jobs_due_at_the_same_time_the_place_tells_by_their_ids(engine: Engine) -> None:
    now = clock(engine)
    made = [nothing.using(run_at=now).enqueue().pk for _ in range(5)]
    (lane,) = engine.look(None, TYPES).lanes
    assert ids(claim(engine, 9, lanes=(lane._replace(id=made[2]),))) == made[2:]


@beside_others
@on_postgresql
def test_what_others_hold_is_stepped_over_in_both_picks(engine: Engine) -> None:
    urgent, normal = due(engine, 5, 4, 3, priority=10), due(engine, 90, 80, 70)
    lanes = (URGENT, NORMAL)
    with session(engine.alias) as other:
        other.begin()
        other.do(lambda: claim(engine, 2, lanes=lanes, oldest=1, locked_by="other:1"))
        assert ids(claim(engine, 3, lanes=lanes, oldest=1)) == [*urgent[1:], normal[1]]
        other.commit()
    assert ids(claim(engine, 9, lanes=lanes)) == normal[2:]


@alone
def test_a_paused_queue_is_no_lane(engine: Engine) -> None:
    due(engine, 90, queue="shut")
    open_one = due(engine, 5)
    pause(queue="shut")
    shut = Lane("shut", 0, 0.0, 0)
    assert ids(claim(engine, 9, lanes=(shut, NORMAL), oldest=3)) == open_one
    assert engine.next_due((shut,)) is None
    assert engine.look(None, TYPES).lanes == ()


@alone
@pytest.mark.parametrize("sizes", [(1,), (1, 2, 3), (10,), (7, 1, 50)], ids=str)
def test_nothing_starves_and_who_is_due_longer_than_w_others_starts_after_4w_other_starts(
    engine: Engine, sizes: tuple[int, ...]
) -> None:
    bulk = due(engine, *range(100, 90, -1), priority=-10)
    lanes = Lanes(0.25)
    started: list[int] = []
    while not set(bulk) <= set(started):
        due(engine, *[1.0] * (max(sizes) * 2), priority=10)
        lanes.look(engine.look(None, TYPES))
        size = random.choice(sizes)
        oldest = lanes.oldest_of(size)
        found = engine.claim(order(size, lanes=lanes.in_turn(), oldest=oldest)).jobs
        lanes.claimed(found, oldest)
        started += ids(found)
    # Of one batch it is left open who is first: all of them start.
    for older, job in enumerate(bulk):
        assert started.index(job) <= 4 * (older + 1) + max(sizes), (older, sizes)
    if len(sizes) == 1:
        assert len(started) <= 4 * len(bulk) + max(sizes)


@alone
def test_queues_take_turns_whatever_their_priorities(engine: Engine) -> None:
    due(engine, *[50.0] * 30, queue="a", priority=50)
    due(engine, *[1.0] * 30, queue="b", priority=-50)
    lanes = Lanes(0.01)
    lanes.look(engine.look(None, TYPES))
    taken = []
    for _ in range(10):
        found = engine.claim(order(2, lanes=lanes.in_turn(), oldest=lanes.oldest_of(2))).jobs
        lanes.claimed(found, 0)
        taken.append({job.queue for job in found})
    assert taken == [{"a"}, {"b"}] * 5


@beside_others
def test_what_came_to_be_below_the_place_is_found_by_the_next_look(engine: Engine) -> None:
    lanes = Lanes(0.25)
    due(engine, *[0.0] * 3)
    lanes.look(engine.look(None, TYPES))
    lanes.claimed(claim(engine, 3, lanes=lanes.in_turn()), 0)
    (late,) = due(engine, 60)  # as of a transaction that took a minute
    if engine.name == "postgresql":
        assert claim(engine, 3, lanes=lanes.in_turn()) == []
    lanes.look(engine.look(None, TYPES))
    assert ids(claim(engine, 3, lanes=lanes.in_turn())) == [late]
    assert LANES[0][:2] == lanes.in_turn()[0][:2]
    assert not transaction.get_connection(engine.alias).in_atomic_block
