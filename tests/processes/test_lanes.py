"""From which place on a worker process reads a lane, and which lane has its turn."""

from __future__ import annotations

from collections import Counter

import pytest

from django_jobs.engines.values import Claimed, Lane, Look
from django_jobs.workers import lanes as module
from django_jobs.workers.lanes import RESTING_LANES, Lanes

NOW = 1_000_000.0


def looked(*lanes: Lane, now: float = NOW) -> Look:
    return Look(0.0, False, lanes, now)


def claimed(due: float, job_id: int, queue: str = "q", priority: int = 0, now: float = NOW) -> Claimed:
    return Claimed(job_id, 1, "w:1", "t", "{}", 0, 8, None, None, None, None, queue, priority, due, now - due)


def places(lanes: Lanes) -> list[tuple[float, int]]:
    return [lane[2:] for lane in lanes.in_turn()]


def test_without_a_look_no_lane_is_known() -> None:
    lanes = Lanes(0.25)
    assert not lanes
    assert lanes.in_turn() == ()


def test_a_claim_of_what_has_waited_for_long_moves_the_place_to_the_last_job_of_it() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 100.0, 1)))
    assert places(lanes) == [(100.0, 1)]
    lanes.claimed([claimed(100.0, 1), claimed(200.0, 7), claimed(200.0, 9)], 0)
    assert places(lanes) == [(200.0, 9)]


def test_what_was_due_a_moment_ago_may_still_be_committed_late_and_is_read_again() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, NOW - 1, 1)))
    lanes.claimed([claimed(NOW - 1, 1), claimed(NOW - 0.5, 2)], 0)
    assert places(lanes) == [(NOW - module.LATE_SECONDS, 0)]


def test_no_more_than_so_many_jobs_are_read_again() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, NOW - 1, 1)))
    for batch in range(10):
        lanes.claimed([claimed(NOW - 1 + batch / 100, batch * 500 + number) for number in range(500)], 0)
    behind = module.LATE_JOBS // 500
    assert places(lanes) == [(NOW - 1 + (9 - behind) / 100, (9 - behind) * 500 + 499)]


def test_a_claim_never_moves_the_place_back() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 100.0, 1)))
    lanes.claimed([claimed(900.0, 7)], 0)
    lanes.claimed([claimed(800.0, 9)], 0)
    assert places(lanes) == [(900.0, 7)]


@pytest.mark.parametrize("first", [(50.0, 3), (950.0, 3)])
def test_a_look_puts_the_place_where_the_first_job_is_be_that_back_or_on(first: tuple[float, int]) -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 100.0, 1)))
    lanes.claimed([claimed(900.0, 7)], 0)
    lanes.look(looked(Lane("q", 0, *first)))
    assert places(lanes) == [first]


def test_a_look_at_a_lane_whose_first_job_is_of_the_future_leaves_room_for_what_is_committed_late() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, NOW + 60, 1)))
    assert places(lanes) == [(NOW - module.LATE_SECONDS, 0)]


def test_a_lane_that_is_empty_stays_known_for_a_while() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 100.0, 1)))
    for number in range(module.EMPTY_LOOKS):
        lanes.look(looked(now=NOW + number))
    assert places(lanes) == [(NOW + number - module.LATE_SECONDS, 0)]
    lanes.look(looked())
    assert not lanes


def test_queues_are_first_in_turn_and_within_each_the_higher_lanes_come_first() -> None:
    lanes = Lanes(0.25)
    names = [("a", 5), ("a", 0), ("b", 9), ("c", -1)]
    lanes.look(looked(*(Lane(queue, priority, 1.0, 1) for queue, priority in reversed(names))))
    orders = []
    for _ in range(4):
        orders.append([lane[:2] for lane in lanes.in_turn()])
        lanes.claimed([claimed(1.0, 1, "a", 5)], 0)
    assert orders == [names, [*names[2:], *names[:2]], [names[3], *names[:3]], names]
    lanes.claimed([], 0)  # what brings nothing is nobody's turn
    assert [lane[:2] for lane in lanes.in_turn()] == [*names[2:], *names[:2]]


def test_of_many_lanes_claims_serve_those_in_which_something_is_due_and_few_others() -> None:
    lanes = Lanes(0.25)
    later = [Lane(f"later{number}", 0, NOW + 60.0, number) for number in range(5_000)]
    due = [Lane(f"due{number}", 0, NOW - 60.0, number) for number in range(300)]
    lanes.look(looked(*later, *due))
    assert {lane.queue for lane in lanes.in_turn()} == {lane.queue for lane in due}
    lanes.look(looked(*later, due[7]))
    served = {lane.queue for lane in lanes.in_turn()}
    # The others that had work a moment ago may have some again.
    assert len(served) == RESTING_LANES
    assert served <= {lane.queue for lane in due}
    assert "due7" in served
    lanes.look(looked(due[7], now=NOW + 1.0))
    lanes.look(looked(*later[:7], now=NOW + 61.0))
    assert {lane.queue for lane in later[:7]} <= {lane.queue for lane in lanes.in_turn()}
    assert len(lanes._tracks) <= RESTING_LANES, "those that are gone are forgotten"


def test_claims_serve_all_of_few_lanes_whatever_is_due_in_them() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(*(Lane(f"q{number}", 0, NOW + 60.0, number) for number in range(RESTING_LANES))))
    assert len(lanes.in_turn()) == RESTING_LANES


def test_a_claim_that_only_parked_jobs_passes_the_turn_on() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("a", 0, 100.0, 1), Lane("b", 0, 100.0, 2)))
    assert lanes.in_turn()[0].queue == "a"
    lanes.claimed([], 0, parked=500)
    assert lanes.in_turn()[0].queue == "b"
    lanes.claimed([], 0)
    assert lanes.in_turn()[0].queue == "b"


@pytest.mark.parametrize("queues", [2, 3, 4, 8])
def test_each_queue_has_turns_also_where_single_jobs_are_claimed_of_which_every_fourth_is_the_oldest(
    queues: int,
) -> None:
    lanes, first, turns = Lanes(0.25), Lane("q0", 0, 100.0, 1), Counter[str]()
    lanes.look(looked(first, *(Lane(f"q{number}", 0, 200.0, number + 1) for number in range(1, queues))))
    for number in range(40 * queues):
        oldest = lanes.oldest_of(1)
        queue = first.queue if oldest else lanes.in_turn()[0].queue
        turns[queue] += not oldest
        lanes.claimed([claimed(300.0, 100 + number, queue)], oldest)
    assert set(turns.values()) == {30}


def two() -> Lanes:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 1.0, 1), Lane("q", 5, 1.0, 1)))
    return lanes


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 100])
def test_of_jobs_started_every_fourth_is_one_of_those_due_longest(size: int) -> None:
    lanes = two()
    total = oldest = 0
    for _ in range(200):
        number = lanes.oldest_of(size)
        lanes.claimed([claimed(1.0, 1)] * size, number)
        total, oldest = total + size, oldest + number
        assert oldest <= total / 4 + 1
    assert oldest >= total / 4 - 1


def test_claims_that_bring_nothing_owe_nothing() -> None:
    lanes = two()
    for _ in range(100):
        assert lanes.oldest_of(1) == 0
        lanes.claimed([], 0)


def test_of_a_single_lane_the_oldest_are_its_own() -> None:
    lanes = Lanes(0.25)
    lanes.look(looked(Lane("q", 0, 1.0, 1)))
    assert lanes.oldest_of(100) == 0
