"""Small parts that decide by what they are told: fitness, outages, seats, pace, doorbells."""

from __future__ import annotations

import copy
import os
import struct
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from django_jobs.engines.base import Engine
from django_jobs.workers import connections as ours
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.fitness import Fitness
from django_jobs.workers.link import Link
from django_jobs.workers.outage import LONGEST_PAUSE, Breaks, Outage
from django_jobs.workers.pace import AHEAD_CHARACTERS, Pace
from django_jobs.workers.seats import SEATS, Phase, Region, Seat, SeatMap, State
from tests.processes.common import with_tables

LEASE, BEAT = 30.0, 10.0


def observed(*moments: tuple[float, float]) -> Fitness:
    """Return the fitness after looks at these times of the database's clock and our own."""
    fitness = Fitness(LEASE, BEAT)
    for there, here in moments:
        fitness.observe(there, here)
    return fitness


def steady(until: float, start: float = 0.0, offset: float = 1e9) -> list[tuple[float, float]]:
    return [(offset + here, here) for here in [start + step * BEAT for step in range(int((until - start) / BEAT) + 1)]]


def test_a_supervisor_is_fit_after_a_lease_of_steady_looks() -> None:
    assert not Fitness(LEASE, BEAT).fit(1e6)
    assert not observed(*steady(20)).fit(29.9)
    assert observed(*steady(30)).fit(30)


def test_a_broken_connection_costs_a_lease_of_fitness() -> None:
    fitness = observed(*steady(30))
    fitness.broken()
    assert not fitness.fit(30)
    for moment in steady(60, start=31):
        fitness.observe(*moment)
    assert not fitness.fit(60.9)
    fitness.observe(1e9 + 61, 61)
    assert fitness.fit(61)


@pytest.mark.parametrize("jump", [-400.0, -11.0, 11.0, 400.0])
def test_a_jump_of_either_clock_costs_a_lease_of_fitness(jump: float) -> None:
    before = steady(30)
    fitness = observed(*before, (1e9 + 40 + jump, 40))
    assert not fitness.fit(40)
    for moment in steady(70, start=40, offset=1e9 + jump):
        fitness.observe(*moment)
    assert fitness.fit(70)


def test_a_small_difference_of_the_clocks_costs_nothing() -> None:
    assert observed(*steady(30), (1e9 + 43, 40)).fit(40)


def test_a_gap_between_looks_costs_a_lease_of_fitness() -> None:
    # Frozen for 25 s, and the database's clock moved as much.
    fitness = observed(*steady(30), (1e9 + 55, 55))
    assert not fitness.fit(55)


def test_a_supervisor_that_has_just_been_frozen_is_not_fit_before_its_next_look() -> None:
    fitness = observed(*steady(30))
    assert not fitness.fit(30 + 2 * BEAT + 1)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("django_jobs.log.database_away", lambda process, error: found.append("away"))
    monkeypatch.setattr("django_jobs.log.database_back", lambda process, seconds: found.append("back"))
    return found


def test_an_outage_is_said_once_a_change_whoever_notices(said: list[str]) -> None:
    outage = Outage("worker 7", 30.0)
    other = threading.Thread(target=outage.failed, args=(OSError(),))
    pauses = [outage.failed(OSError()) for _ in range(12)]
    other.start()
    other.join()
    assert said == ["away"]
    assert 0 < pauses[0] < 1
    assert all(0 < pause <= LONGEST_PAUSE for pause in pauses)
    assert LONGEST_PAUSE / 2 <= pauses[-1] <= LONGEST_PAUSE
    short = Outage("worker 8", 1.5)
    assert all(short.failed(OSError()) <= 0.5 for _ in range(12))
    said.remove("away")
    outage.over()
    assert (said, outage.lasts) == (["away"], True)  # the other thread cannot reach it yet
    outage._pauses.pop(other.name)
    outage.failed(OSError())
    outage.over()
    assert (said, outage.lasts) == (["away", "away", "back"], False)


def test_a_thread_that_ended_in_an_outage_and_was_started_anew_ends_it(said: list[str]) -> None:
    outage = Outage("supervisor", 30.0)
    failed, end = threading.Event(), threading.Event()

    def fail() -> None:
        outage.failed(OSError())
        failed.set()
        end.wait(10)  # else the next thread may have its number

    first = threading.Thread(target=fail, name="heart")
    first.start()
    assert failed.wait(10)
    second = threading.Thread(target=outage.over, name="heart")
    second.start()
    second.join()
    end.set()
    first.join()
    assert (said, outage.lasts) == (["away", "back"], False)


@with_tables
def test_a_probe_that_set_out_before_another_thread_was_through_begins_no_other_outage(
    engine: Engine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage("supervisor", 30.0)
    link = Link(engine, outage, 30.0)
    link.connect()

    def probe(timeout: float) -> bool:
        outage.check(lambda: True)  # meanwhile, as another thread does
        return False

    monkeypatch.setattr(engine, "probe", probe)
    assert link.failed("Looking", OperationalError("gone")) is not None
    assert (said, outage.lasts) == ([], False)
    monkeypatch.setattr(engine, "probe", lambda timeout: False)
    assert link.failed("Looking", OperationalError("gone"))
    assert (said, outage.lasts) == (["away"], True)


def test_a_connection_that_breaks_again_and_again_is_tried_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("django_jobs.workers.outage.time.monotonic", lambda: now)
    breaks = Breaks(30.0)
    pauses = [breaks.pause() for _ in range(12)]
    assert (pauses[0], pauses[1] <= 0.1, sum(pauses[:4]) < 1) == (0.0, True, True)
    assert all(LONGEST_PAUSE / 2 <= pause <= LONGEST_PAUSE for pause in pauses[8:])
    now += 10
    assert breaks.pause() == 0.0


@pytest.fixture
def region() -> Region:
    return SeatMap(1).regions[0]


def taken(region: Region) -> list[tuple[int, State, int, int, int, bool]]:
    return [(seat.number, seat.state, seat.job_id, seat.token, seat.claim, seat.torn) for seat in region.seats()]


def test_the_life_of_a_seat(region: Region) -> None:
    assert region.seats() == []
    region.take([(3, 2**62, 7)], claim=2)
    assert taken(region) == [(3, State.CLAIMED, 2**62, 7, 2, False)]
    for state in (State.RUNNING, State.RETURNED):
        region.mark(3, state)
        assert taken(region) == [(3, state, 2**62, 7, 2, False)]
    region.mark(3, State.FREE)
    assert region.seats() == []


def test_a_record_without_its_state_is_no_seat_and_half_a_record_is_torn(region: Region) -> None:
    region.take([(0, 1, 1)], claim=1)
    region.mark(0, State.FREE)
    # The next job's id is written, and then the process is killed.
    memory, at = region._memory, region._seats
    struct.pack_into("@q", memory, at, 2)
    assert region.seats() == []
    region.mark(0, State.CLAIMED)
    assert [seat.torn for seat in region.seats()] == [True]


def test_what_a_crashing_process_scribbled_over_may_have_been_running(region: Region) -> None:
    region.take([(1, 1, 1)], claim=1)
    region.mark(1, 200)  # type: ignore[arg-type]
    region.set_phase(99)  # type: ignore[arg-type]
    assert taken(region) == [(1, State.RUNNING, 1, 1, 1, True)]
    assert region.phase is Phase.BUSY


def test_regions_do_not_touch_and_survive_the_process_that_wrote_them() -> None:
    seats = SeatMap(3)
    pid = os.fork()
    if not pid:
        for number in range(SEATS):
            seats.regions[1].take([(number, number + 1, 1)], 1)
        seats.regions[1].count("done", 5)
        seats.regions[1].set_phase(Phase.IDLE)
        seats.regions[1].tick_claims()
        os._exit(0)
    os.waitpid(pid, 0)
    assert [len(region.seats()) for region in seats.regions] == [0, SEATS, 0]
    assert [seat.job_id for seat in seats.regions[1].seats()] == list(range(1, SEATS + 1))
    assert [region.counters()["done"] for region in seats.regions] == [0, 5, 0]
    assert [region.phase for region in seats.regions] == [Phase.STARTING, Phase.IDLE, Phase.STARTING]
    seats.beat(12.5)
    seats.tick_template()
    assert seats.last_beat == 12.5
    seats.regions[1].clear()
    assert [region.seats() for region in seats.regions] == [[], [], []]
    assert (seats.regions[1].phase, seats.last_beat) == (Phase.STARTING, 12.5)


def test_a_run_is_stopped_by_its_own_name_only(region: Region) -> None:
    region.stop_run(5, job_id=8, token=1)
    assert region.run_stopped(5, 8, 1)
    assert not region.run_stopped(5, 9, 1)
    assert not region.run_stopped(5, 8, 2)
    assert not region.run_stopped(6, 8, 1)
    assert not region.stop_asked
    region.orphan()
    assert region.stop_asked


def test_a_seat_names_the_moment_of_its_claim(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 123.5)
    region.take([(0, 1, 1)], 1)
    assert region.seats() == [Seat(0, State.CLAIMED, 1, 1, 1, 123.5)]


def test_more_is_claimed_than_there_are_threads_only_when_measured_as_quick() -> None:
    pace = Pace(threads=4)
    for _ in range(19):
        pace.record("quick", 0.001)
    assert pace.ahead(["quick"]) == 0
    pace.record("quick", 0.001)
    assert pace.ahead(["quick"]) == 200
    for _ in range(20):
        pace.record("slow", 2.0)
    assert pace.ahead(["slow"]) == pace.ahead(["quick", "slow"]) == pace.ahead(["quick", "new"]) == 0
    # The slowest twentieth decides.
    for _ in range(94):
        pace.record("mixed", 0.001)
    for _ in range(6):
        pace.record("mixed", 1.0)
    assert pace.ahead(["mixed"]) == 0
    pace.forget()
    assert pace.ahead(["quick"]) == 0


def test_fewer_are_claimed_ahead_the_larger_their_arguments() -> None:
    pace = Pace(threads=4)
    for _ in range(20):
        pace.record("quick", 0.001)
    pace.weigh(["x" * 1_000] * 3)
    assert pace.ahead(["quick"]) == 200
    pace.weigh(["x" * 100_000, "x" * 300_000])
    assert pace.ahead(["quick"]) == AHEAD_CHARACTERS // 200_000
    # It is remembered for some claims, and then no more.
    pace.weigh(["x"])
    assert AHEAD_CHARACTERS // 200_000 < pace.ahead(["quick"]) < 200
    for _ in range(30):
        pace.weigh(["x"])
    assert pace.ahead(["quick"]) == 200


def test_memory_that_only_the_start_needed_is_given_back_and_what_is_needed_after_all_comes_again() -> None:
    code = (
        "from django_jobs.workers import posix\n"
        "def shared():\n"
        "    with open('/proc/self/smaps_rollup') as file:\n"
        "        return sum(int(line.split()[1]) for line in file if line.startswith(('Shared_Clean', 'Private_Clean')))\n"
        "import decimal, sqlite3, ssl\n"
        "before = shared()\n"
        "posix.give_back_memory()\n"
        "assert shared() < before / 2, (shared(), before)\n"
        "assert sqlite3.connect(':memory:').execute('SELECT 1').fetchone() == (1,)\n"
        "assert ssl.create_default_context() and decimal.Decimal(1) / 3\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_doorbell_rings_once_for_many_and_wakes_a_later_wait() -> None:
    bell = Doorbell()
    for _ in range(100_000):
        bell.ring()
    assert bell.wait(0)
    while bell.wait(0):
        pass
    assert not bell.wait(0.01)


def test_connections_show_the_role_of_this_process_and_keep_what_the_project_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {"sslmode": "prefer", "connect_timeout": 77, "pool": True}
    settings = copy.deepcopy(connections.settings)
    settings["default"]["OPTIONS"] = given
    monkeypatch.setattr(connections, "settings", settings)
    monkeypatch.setattr(type(connections), "close_all", lambda self: None)
    try:
        for role in ("supervisor", "worker"):  # a template forked later starts from what the supervisor has set
            ours.configure_connections(role, lease=30.0)
            options = settings["default"]["OPTIONS"]
            shown = (options["application_name"], options["connect_timeout"], options["sslmode"])
            assert (shown, "pool" in options) == ((f"django_jobs:{role}", 77, "prefer"), False)
            assert (options["tcp_user_timeout"], settings["default"]["CONN_MAX_AGE"]) == (10_000, None)
            assert settings["lite"]["OPTIONS"]["timeout"] == 20
    finally:
        connection_created.disconnect(dispatch_uid="django_jobs")
