"""When a worker process is replaced, when what runs in it is cut, and what becomes of that."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from django_jobs import Backoff
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.workers.crew import Crew
from django_jobs.workers.draining import Drainer
from django_jobs.workers.fallen import Fallen
from django_jobs.workers.places import LONGEST_RESTART_PAUSE, Place
from django_jobs.workers.seats import Phase, SeatMap, State
from tests.app.jobs import choose_error, nothing
from tests.processes.common import with_tables
from tests.processes.parts import Tables, claim, plan, states

fast = pytest.mark.fast
PATIENCE = 5.0
DRAIN = 60.0


class FakeChannel:
    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, index: int, incarnation: str, solo: bool) -> None:
        self.sent.append(index)


class Manned:
    """A crew whose processes are never really there."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, processes: int = 1, regions: int = 2, threads: int = 2, solo: int = 0
    ) -> None:
        self.plan = plan("default", processes=processes, threads=threads, drain=DRAIN)
        self.fallen: list[Fallen] = []
        self.crew = Crew(self.plan, SeatMap(regions, solo), self.fallen.append)
        self.crew.channel = self.channel = FakeChannel()  # type: ignore[assignment]
        self.drainer = Drainer(self.plan, self.crew)
        self.killed: list[Place] = []
        monkeypatch.setattr(self.crew, "kill", self._kill)
        self.man()

    def _kill(self, place: Place, why: str) -> None:
        place.killed_for = why
        self.killed.append(place)

    def man(self) -> list[Place]:
        """Start what is missing; return where."""
        self.crew.start_missing()
        return self.started()

    def started(self) -> list[Place]:
        """Say that what was asked for has started; return where."""
        begun = [place for place in self.crew.places if place.starting]
        for place in begun:
            self.crew._hear(place, {"event": "started", "pid": 4_000_000 + place.index})
            place.region.tick_claims()
            place.region.tick_writes()
        return begun

    def end(self, place: Place, code: int, phase: Phase = Phase.BUSY) -> None:
        assert place.child is not None
        place.region.set_phase(phase)
        self.crew._hear(place, {"event": "died", "pid": place.child.pid, "code": code})

    def seat(self, place: Place, number: int, late_by: float | None, state: State = State.RUNNING) -> None:
        """Fill a seat with a run that passed its deadline so long ago; None for one without."""
        place.region.take([(number, number + 1, 1)], 1)
        place.region.begin(number, float("inf") if late_by is None else time.monotonic() - late_by)
        place.region.mark(number, state)

    def is_idle(self) -> bool:
        return self.crew.all_idle

    def look(self, cut_off: bool = False, awake_for: float = 1000) -> None:
        self.drainer.look(time.monotonic() - awake_for, cut_off)

    def silence(self, place: Place, seconds: float) -> None:
        place.started_at = 0.0
        then = time.monotonic() - seconds
        struct.pack_into("@dd", place.region._memory, place.region._base, then, then)


@pytest.fixture
def manned(monkeypatch: pytest.MonkeyPatch) -> Manned:
    return Manned(monkeypatch)


@fast
@pytest.mark.parametrize(("late_by", "is_replaced"), [(9.0, False), (11.0, True), (None, False)])
def test_a_process_is_replaced_when_a_run_is_two_steps_past_its_deadline(
    manned: Manned, late_by: float | None, is_replaced: bool
) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, late_by)
    manned.seat(place, 1, -600)
    manned.look()
    assert (place.draining_since is not None, place.region.drain_asked) == (is_replaced, is_replaced)
    assert [found.index for found in manned.man()] == ([1] if is_replaced else [])
    assert manned.killed == []


@fast
def test_after_all_have_been_frozen_late_runs_are_given_the_time_to_end(manned: Manned) -> None:
    manned.seat(manned.crew.places[0], 0, 600)
    for awake_for, is_replaced in ((9, False), (11, True)):
        manned.look(awake_for=awake_for)
        assert (manned.crew.places[0].draining_since is not None) == is_replaced


@fast
def test_what_runs_beside_is_waited_for_told_to_stop_and_cut_when_drain_is_over(manned: Manned) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, -600)
    manned.look()
    for spent, stopped, killed in ((29, False, False), (31, True, False), (61, True, True)):
        place.draining_since = time.monotonic() - spent
        manned.look()
        assert (place.region.stop_asked, bool(manned.killed)) == (stopped, killed), spent
    assert not place.held


@fast
@pytest.mark.parametrize("state", [State.RUNNING, State.RETURNED, State.CLAIMED, State.FREE])
def test_a_process_is_ended_at_once_when_only_late_runs_are_left_in_it(manned: Manned, state: State) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, -600, state)
    manned.look()
    manned.look()
    assert bool(manned.killed) == (state is State.FREE)


@fast
def test_without_room_for_another_a_process_is_replaced_only_when_all_its_threads_are_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manned = Manned(monkeypatch, regions=1)
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, 1)
    manned.look()
    assert place.draining_since is None
    manned.seat(place, 1, 11)
    manned.look()
    manned.look()
    assert manned.killed == [place]
    manned.end(place, -9)
    assert manned.man() == [place]


@fast
@pytest.mark.parametrize(
    ("beside", "silent", "ended"),
    [(None, 6, True), (None, 4, False), (-600, 6, False), (11, 6, True)],
    ids=["no deadline", "not long", "time left", "late too"],
)
def test_a_silent_process_is_ended_when_all_that_has_a_deadline_is_late(
    manned: Manned, beside: float | None, silent: float, ended: bool
) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, beside)
    manned.silence(place, silent)
    manned.look()
    assert (bool(manned.killed), place.held) == (ended, ended)


@fast
def test_a_silent_process_is_ended_when_drain_is_over_and_taken_for_held(manned: Manned) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, -600)
    manned.look()
    place.draining_since = time.monotonic() - DRAIN - 1
    manned.silence(place, 6)
    manned.look()
    assert (manned.killed, place.held) == ([place], True)


@fast
def test_while_the_database_is_away_nothing_is_cut_and_outcomes_are_given_time_afterwards(manned: Manned) -> None:
    place = manned.crew.places[0]
    manned.seat(place, 0, 11)
    manned.seat(place, 1, -600, State.RETURNED)
    manned.look()
    place.draining_since = time.monotonic() - DRAIN - 1
    manned.look(cut_off=True)
    manned.look()
    assert manned.killed == []
    place.draining_since -= 11
    manned.look()
    assert manned.killed == [place]


@fast
def test_a_process_that_reached_a_limit_is_replaced_before_and_after_its_end(manned: Manned) -> None:
    first, second = manned.crew.places
    first.region.set_phase(Phase.DRAINING)
    manned.look()
    assert manned.man() == [second]
    # What it has claimed it runs: it is not told to give back.
    assert not first.region.drain_asked
    # One that has ended before that was seen is no process that dies at its start.
    manned.end(first, 0, Phase.ENDED)
    for _ in range(5):
        (living,) = [place for place in manned.crew.places if place.child]
        manned.end(living, 0, Phase.ENDED)
        assert manned.man()


@fast
def test_a_process_that_keeps_dying_at_its_start_is_given_more_time_wherever_it_starts(manned: Manned) -> None:
    for _ in range(2):
        (place,) = manned.man() or [place for place in manned.crew.places if place.child]
        manned.end(place, 1)
    (place,) = manned.man()
    manned.end(place, 1)
    assert manned.man() == []
    post = manned.crew._posts[0]
    assert 0 < post.start_after - time.monotonic() <= 0.5
    post.quick_deaths = 30
    post.delay_start(time.monotonic())
    assert 20 < post.start_after - time.monotonic() <= LONGEST_RESTART_PAUSE


@fast
def test_a_process_that_died_by_what_it_ran_is_replaced_at_once_however_often(manned: Manned) -> None:
    for _ in range(10):
        (place,) = manned.man() or [place for place in manned.crew.places if place.child]
        manned.seat(place, 0, None)
        manned.end(place, -11)
    assert len(manned.man()) == 1


@fast
def test_a_burst_is_not_over_while_a_process_is_being_replaced(manned: Manned) -> None:
    first, second = manned.crew.places
    first.region.set_phase(Phase.IDLE)
    assert manned.is_idle()
    manned.seat(first, 0, 11)
    manned.seat(first, 1, -600)
    manned.look()
    manned.man()
    second.region.set_phase(Phase.IDLE)
    first.region.set_phase(Phase.DRAINING)
    assert not manned.is_idle()
    first.region.mark(1, State.FREE)
    manned.look()
    manned.end(first, -9)
    assert manned.is_idle()


@fast
def test_the_counters_of_a_process_that_is_being_replaced_and_of_one_that_was_count(manned: Manned) -> None:
    first, second = manned.crew.places
    first.region.count("done", 3)
    manned.crew.drain(first)
    manned.man()
    second.region.count("done", 4)
    assert manned.crew.counters()["done"] == 7
    manned.end(first, 0, Phase.ENDED)
    assert manned.crew.counters()["done"] == 7


# What becomes of runs whose process was ended.


def fallen(tables: Tables, late: set[int], **values: Any) -> Fallen:
    given = {"how": None, "why": "it was over", "ours": True, "late": frozenset(late), **values}
    return Fallen(child=tables.child, seats=tables.region.seats(), **given)


def history(job: Any) -> list[tuple[str, str]]:
    return [(line["cause"], line["error"]) for line in Job.objects.using(job._state.db).get(pk=job.pk).history]


@with_tables
def test_a_late_run_is_charged_an_attempt_and_those_beside_it_nothing(engine: Engine) -> None:
    tables = Tables(engine)
    jobs = [nothing.using(timeout=7, max_attempts=attempts).enqueue() for attempts in (8, 1, 8, 8)]
    jobs.append(nothing.using(timeout=None).enqueue())
    runs = claim(engine, 5, f"{tables.child.incarnation}:1")
    tables.seat(runs)
    for number in range(5):
        tables.region.begin(number, 1.0 if number < 4 else float("inf"))
    tables.region.mark(3, State.RETURNED)
    due = jobs[2].run_at
    assert tables.rescuer._take_back(fallen(tables, {0, 1}))
    assert states(engine, runs) == [("ready", 1, 0, 1), ("dead", 1, 0, 1), *[("ready", 0, 0, 1)] * 3]
    said = "The run passed its deadline of 7 s, did not end, and was ended with its process."
    assert [history(job) for job in jobs] == [
        [("deadline", said)],
        [("deadline", said)],
        [("stopped", "it was over")],
        [("outcome lost", "the run had ended, and its process was gone before that was stored")],
        [("stopped", "it was over")],
    ]
    assert [job.refresh().last_error for job in jobs[:3]] == [said, said, ""]
    assert jobs[2].run_at == due


@with_tables
def test_in_a_process_that_was_held_what_has_no_deadline_is_charged_a_loss(engine: Engine) -> None:
    tables = Tables(engine)
    for timeout in (7, None, 7):
        nothing.using(timeout=timeout).enqueue()
    runs = claim(engine, 3, f"{tables.child.incarnation}:1")
    tables.seat(runs)
    for number, deadline in enumerate((1.0, float("inf"), 1.0)):
        tables.region.begin(number, deadline)
    assert tables.rescuer._take_back(fallen(tables, {0}, held=True))
    assert states(engine, runs) == [("ready", 1, 0, 1), ("ready", 0, 1, 1), ("ready", 0, 0, 1)]


@with_tables
def test_the_backoff_of_a_late_run_is_that_of_its_type_or_of_the_settings(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Backoff, int]] = []

    def delay(backoff: Backoff, attempts: int) -> float:
        asked.append((backoff, attempts))
        return 100.0

    monkeypatch.setattr(Backoff, "delay", delay)
    tables = Tables(engine)
    tables.rescuer._backoff = Backoff(base=77)
    jobs = [nothing.enqueue(), choose_error.enqueue("KeyError")]
    runs = claim(engine, 2, f"{tables.child.incarnation}:1")
    tables.seat(runs)
    for number in range(2):
        tables.region.begin(number, 1.0)
    assert tables.rescuer._take_back(fallen(tables, {0, 1}))
    assert sorted(asked, key=lambda item: item[0].base) == [(Backoff(base=0), 1), (Backoff(base=77), 1)]
    for job in jobs:
        assert (job.refresh().run_at - job.created_at).total_seconds() > 90
