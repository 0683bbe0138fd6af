"""Who is woken by what is heard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db import OperationalError, connections

from django_jobs.engines.base import Engine
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.listener import Listener
from django_jobs.workers.outage import Outage
from django_jobs.workers.seats import Phase, SeatMap
from django_jobs.workers.waking import ALERT_SECONDS, LAST_SECONDS, LONGEST_LAG, Alert, Waker
from django_jobs.workers.watchdog import watchdog
from tests.harness import wait_for
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import plan

NUMBER = 4


class Processes:
    def __init__(self, own: int = -1) -> None:
        self.regions = SeatMap(NUMBER).regions
        self.bells = [Doorbell() for _ in self.regions]
        self.waker = Waker(self.regions, self.bells, own)

    def be(self, *phases: Phase | None) -> None:
        """Have processes rest in these phases, and those with None not."""
        for region, phase in zip(self.regions, phases, strict=True):
            region.set_rests(phase is not None)
            region.set_phase(phase or Phase.BUSY)

    def woken(self) -> list[int]:
        return [index for index, bell in enumerate(self.bells) if bell.wait(0)]


def test_one_process_is_woken_and_the_next_time_another() -> None:
    found = Processes()
    found.be(*[Phase.IDLE] * NUMBER)
    woken = []
    for _ in range(2 * NUMBER):
        found.waker.wake()
        woken += found.woken()
    assert woken == [*range(NUMBER), *range(NUMBER)]
    assert all(region.told.woken_at > 0 for region in found.regions)


def test_one_that_runs_nothing_is_woken_rather_than_one_with_free_threads() -> None:
    found = Processes()
    found.be(Phase.BUSY, Phase.BUSY, Phase.IDLE, None)
    for _ in range(2):
        found.waker.wake()
        assert found.woken() == [2]
    found.be(Phase.BUSY, None, None, None)
    found.waker.wake()
    assert found.woken() == [0]


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING, Phase.ENDED, Phase.FAILED])
def test_one_that_will_claim_nothing_is_not_woken(phase: Phase) -> None:
    found = Processes()
    found.be(phase, phase, phase, Phase.IDLE)
    for _ in range(2):
        found.waker.wake()
        assert found.woken() == [3]


def test_where_none_waits_each_is_to_claim_again_before_it_does() -> None:
    found = Processes()
    found.be(*[None] * NUMBER)
    found.waker.wake()
    assert found.woken() == []
    assert all(region.told.woken_at > 0 for region in found.regions)


def test_a_process_that_found_more_than_it_can_take_calls_another_and_never_itself() -> None:
    found = Processes(own=1)
    found.be(Phase.IDLE, Phase.IDLE, None, Phase.IDLE)
    woken = []
    for _ in range(3):
        found.waker.call()
        woken += found.woken()
    assert woken == [3, 0, 3]
    found.be(None, Phase.IDLE, None, None)
    assert not found.waker.call()
    assert found.woken() == []
    # Whoever comes in vain has not met others who were faster, and is not to hesitate the next time.
    assert [region.told.woken_at for region in found.regions] == [0.0] * NUMBER
    assert [region.told.called_at > 0 for region in found.regions] == [True, False, False, True]


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("django_jobs.workers.waking.time.monotonic", lambda: self.now)

    def looks(self, alert: Alert) -> list[float]:
        """Look as long as the alert says, and find nothing; return the pauses."""
        pauses = []
        while (pause := alert.pause()) < 1:
            pauses.append(pause)
            self.now += pause
        return pauses


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_one_that_was_woken_claims_at_once_and_looks_ever_more_slowly_for_a_tenth_of_a_second(clock: Clock) -> None:
    alert = Alert()
    assert clock.looks(alert) == []
    assert alert.begin() == 0
    pauses = clock.looks(alert)
    assert pauses == sorted(pauses)
    assert (min(pauses), 5 <= len(pauses) <= 10) == (0.005, True)
    assert ALERT_SECONDS <= clock.now - 100.0 < 2 * ALERT_SECONDS


def test_what_it_finds_keeps_it_looking_and_what_it_finds_by_itself_later_does_not(clock: Clock) -> None:
    alert = Alert()
    alert.begin()
    for _ in range(5):
        alert.found()
        clock.now += 0.09
    found = clock.now - 0.09
    clock.looks(alert)
    assert clock.now - found >= ALERT_SECONDS
    alert.found()
    assert clock.looks(alert) == []


def test_where_others_are_faster_it_looks_later_and_once_for_many_wake_ups(clock: Clock) -> None:
    alert, lags = Alert(), []
    for _ in range(50):
        lag, woken_at = alert.begin(), clock.now
        assert alert.begin() == lag
        lags.append(lag)
        clock.now += lag
        looks = clock.looks(alert)
        if alert.is_contended:
            assert len(looks) == (lag < LAST_SECONDS)
            assert clock.now >= woken_at + LAST_SECONDS - 0.001
    assert lags[:2] == [0, 0]
    assert 0.02 < max(lags) <= LONGEST_LAG
    for _ in range(5):
        clock.now += alert.begin()
        alert.found()
    assert not alert.is_contended
    assert len(clock.looks(alert)) > 1


def test_after_a_calm_it_claims_at_once_again(clock: Clock) -> None:
    alert = Alert()
    for _ in range(10):
        clock.now += alert.begin()
        clock.looks(alert)
    assert alert.is_contended
    clock.now += 6.0
    assert alert.begin() == 0
    assert clock.looks(alert)


def test_a_wake_up_for_what_it_has_found_already_is_no_sign_of_others(clock: Clock) -> None:
    alert = Alert()
    alert.begin()
    for _ in range(20):
        alert.found()
        clock.now += 0.01
        alert.begin()
        assert alert.pause() < 1
    assert not alert.is_contended


# The thread that listens.


class Counting:
    def __init__(self) -> None:
        self.times = 0

    def wake(self) -> None:
        self.times += 1


@pytest.fixture
def outage() -> Outage:
    return Outage("supervisor", 30.0)


@pytest.fixture
def listener(request: pytest.FixtureRequest, engine: Engine, outage: Outage) -> Iterator[Listener]:
    queues = getattr(request, "param", None)
    found = Listener(engine, replace(plan(engine.alias), queues=queues), outage, Counting())
    found.start()
    wait_for(lambda: found.listens)
    yield found
    assert found.end(5.0)
    watchdog.end()


@pytest.fixture
def engine(vendor: str, transactional_db: None) -> Engine:
    from django_jobs.engines import engine as engine_of

    return engine_of()


@pytest.mark.parametrize(("listener", "times"), [(("mail", "b"), 3), (None, 5)], indirect=["listener"])
@on_postgresql
@with_tables
def test_a_process_is_woken_for_the_queues_that_are_served_and_once_for_each(
    engine: Engine, listener: Listener, times: int
) -> None:
    waker = listener._waker
    assert isinstance(waker, Counting)
    wait_for(lambda: waker.times == 1)  # when it began to listen
    sent = ["default", "mailing", "trial of another", "mail", "", "b"]
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("BEGIN")
        for queue in sent:
            cursor.execute("SELECT pg_notify(%s, %s)", [engine.channel(), queue])
        cursor.execute("COMMIT")
    wait_for(lambda: waker.times > times)
    assert waker.times == 1 + times


@on_postgresql
@with_tables
def test_after_an_outage_that_others_noticed_it_connects_anew_and_wakes(listener: Listener, outage: Outage) -> None:
    waker = listener._waker
    assert isinstance(waker, Counting)
    outage.failed(OperationalError("away"))
    wait_for(lambda: not listener.listens)
    before = waker.times
    outage.over()
    wait_for(lambda: listener.listens and waker.times == before + 1)


@on_postgresql
@with_tables
def test_a_listener_ends_in_a_moment_and_may_be_started_again(listener: Listener) -> None:
    assert listener.end(5.0)
    assert not listener.listens
    assert not [thread for thread in threading.enumerate() if thread.name == "django_jobs-listener"]
    listener.start()
    wait_for(lambda: listener.listens)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@on_postgresql
@with_tables
def test_a_listener_whose_thread_ended_is_started_again(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_listen", sys.exit)
    listener._told.ring()
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    wait_for(lambda: not listener._thread.is_alive())
    monkeypatch.undo()
    listener.revive()
    assert wait_for(lambda: listener.listens)
