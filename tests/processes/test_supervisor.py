"""Which worker processes a supervisor takes for hanging, and what it says of its scheduler."""

from __future__ import annotations

import gc
import logging
import os
import socket
import struct
import time
from typing import Any

import pytest

from django_jobs.queue import told
from django_jobs.workers import supervisor as module
from django_jobs.workers import template
from django_jobs.workers.fallen import Child
from django_jobs.workers.places import Place
from django_jobs.workers.seats import State
from django_jobs.workers.supervisor import Supervisor
from django_jobs.workers.teller import Teller
from tests.processes.parts import hold, plan

HANG = 6.0


class Watched:
    """A supervisor with one child, which is never really there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.supervisor = Supervisor(plan("default", lease=HANG, heartbeat=2.0))
        self.supervisor._hang_seconds = HANG
        self.supervisor._awake_since = 0.0
        self.place = self.supervisor._crew.places[0]
        self.place.child = Child(index=0, incarnation="a" * 32, pid=0)
        self.killed: list[str] = []
        monkeypatch.setattr(self.supervisor._crew, "kill", self._kill)

    def _kill(self, place: Place, why: str) -> None:
        self.killed.append(why)

    def silent(self, claims: float, writes: float) -> None:
        """Let the child's two loops have ticked so many seconds ago."""
        now = time.monotonic()
        struct.pack_into("@dd", self.place.region._memory, self.place.region._base, now - claims, now - writes)

    def look(self) -> bool:
        """Return whether the child is taken for hanging."""
        self.killed.clear()
        self.supervisor._replace_hanging()
        return bool(self.killed)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.mark.parametrize(("claims", "writes", "hangs"), [(5, 5, False), (7, 0, True), (0, 7, True), (7, 7, True)])
def test_an_idle_process_hangs_when_either_loop_is_silent(
    watched: Watched, claims: float, writes: float, hangs: bool
) -> None:
    watched.silent(claims, writes)
    assert watched.look() is hangs


def test_a_process_that_starts_is_given_time(watched: Watched) -> None:
    watched.place.started_at = time.monotonic() - 5
    assert not watched.look()
    watched.place.started_at = time.monotonic() - 7
    assert watched.look()


def test_a_run_may_hold_the_interpreter_and_both_loops_are_given_time_after_it(watched: Watched) -> None:
    watched.place.region.take([(0, 1, 1)], 1)
    watched.place.region.mark(0, State.RUNNING)
    watched.silent(100, 100)
    assert not watched.look()
    watched.place.region.mark(0, State.FREE)  # it ended, and a loop in the middle of its work has not ticked yet
    watched.silent(100, 0)
    assert not watched.look()
    watched.place.excused_at -= 7
    assert watched.look()


def test_a_loop_that_is_silent_while_the_other_is_not_hangs_also_beside_a_run(watched: Watched) -> None:
    watched.place.region.take([(0, 1, 1)], 1)
    watched.place.region.mark(0, State.RUNNING)
    watched.silent(100, 0)
    assert watched.look()


def test_outcomes_still_to_be_stored_are_given_three_times_as_long(watched: Watched) -> None:
    watched.place.region.take([(0, 1, 1)], 1)
    watched.place.region.mark(0, State.RETURNED)
    watched.silent(17, 17)
    assert not watched.look()
    watched.silent(19, 19)
    assert watched.look()


def test_after_having_been_frozen_itself_a_supervisor_gives_its_children_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.workers.posix.reap", lambda pid: None)
    watched.silent(100, 100)
    watched.supervisor._awake_at = time.monotonic() - 3
    watched.supervisor._bell.ring()
    watched.supervisor._wait()
    assert not watched.look()


def test_nobody_is_replaced_while_the_database_is_away_or_twice(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.silent(100, 100)
    away: Any = property(lambda heart: True)
    with monkeypatch.context() as patched:
        patched.setattr(type(watched.supervisor._heart), "cut_off", away)
        assert not watched.look()
    assert watched.look()
    watched.place.killed_for = "its process did not answer"
    assert not watched.look()


# Its threads, and the fork.


@pytest.fixture
def forks(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have no thread be started but that of the Teller, and nothing be forked; return whether that was there at each fork."""
    found: list[bool] = []
    monkeypatch.setattr(module, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(watched.supervisor._heart, "start", lambda: None)
    monkeypatch.setattr(watched.supervisor._heart, "end", lambda timeout: True)
    monkeypatch.setattr(watched.supervisor, "_start_beside", lambda: None)
    monkeypatch.setattr(
        watched.supervisor._crew,
        "fork_template",
        lambda: found.append(watched.supervisor._teller._thread.is_alive()),
    )
    return found


def test_who_tells_signals_has_ended_when_the_template_is_forked_and_goes_on_after_it(
    watched: Watched, forks: list[bool]
) -> None:
    supervisor, heard = watched.supervisor, list[int]()
    free = hold(supervisor._teller)
    supervisor._teller.put(lambda: heard.append(1))
    supervisor._restore_template()
    assert forks == []
    free.set()
    supervisor._teller._thread.join(5.0)
    assert heard == []
    supervisor._restore_template()
    assert forks == [False]
    supervisor._teller.end(5.0)
    assert heard == [1]


def test_a_receiver_that_does_not_come_back_keeps_no_worker_from_being_started(
    watched: Watched, forks: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    watched.supervisor._teller = Teller(patience=0.03)
    free = hold(watched.supervisor._teller)
    while not forks:
        watched.supervisor._restore_template()
    free.set()
    assert forks == [True]
    assert "A receiver of a signal has not come back for 0.03 s" in caplog.text


def test_a_forked_process_tells_signals_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_way", Teller().put)
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(socket, "socketpair", lambda: (ours, theirs))
    ways: list[Any] = []
    monkeypatch.setattr(template, "_run_forked", lambda main: ways.append(told._way))
    with theirs, pytest.raises(AssertionError, match="came back"):
        template.fork_template(None, None, [])  # type: ignore[arg-type]
    assert ways == [told.at_once]


# Its scheduler.


@pytest.fixture
def revived(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the scheduler never start; return what it was refused for, each time that it was asked to."""
    scheduler, found = watched.supervisor._scheduler, list[str]()
    assert scheduler is not None
    monkeypatch.setattr(scheduler, "revive", lambda: found.append(scheduler.refused))
    return found


def test_why_its_scheduler_was_refused_is_said_once_until_it_is_another_reason(
    watched: Watched, revived: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_jobs")
    scheduler = watched.supervisor._scheduler
    assert scheduler is not None
    given = ["", "no table", "no table", "", "no table", "no column"]
    for refused in given:
        scheduler.refused = refused
        watched.supervisor._revive_beside()
    assert revived == given
    said = "No jobs of schedules are made, workers go on: "
    assert caplog.messages == [f"{said}no table", f"{said}no column"]
