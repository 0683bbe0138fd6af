"""An exception raised in another thread hits the call that it is meant for, or nothing."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs import Retry
from django_jobs.exceptions import DeadlinePassed
from django_jobs.workers import pinned
from django_jobs.workers.pinned import PinnedCall

pytestmark = [
    pytest.mark.fast,
    # What comes while Python runs a callback of a weak reference is said and dropped.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CALLS = 8_000
THREADS = 3


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Have the threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Storm:
    """Threads that make short calls, each of them interrupted as late as possible, and work of theirs in between."""

    def __init__(self, end: Any) -> None:
        self.end = end
        self.escaped: list[BaseException] = []
        self.ends: dict[str, int] = {}
        self.current: list[PinnedCall | None] = [None] * THREADS
        self.ended = [False] * THREADS

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(index,)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        while not all(self.ended):
            for call in list(self.current):
                if call is not None:
                    self._interrupt(call)
        for thread in threads:
            thread.join()

    def _interrupt(self, call: PinnedCall) -> None:
        with call.lock:
            call.interrupt()

    def _work(self, index: int) -> None:
        try:
            for number in range(CALLS):
                self._call(index, number)
        except BaseException as error:
            self.escaped.append(error)
        finally:
            self.ended[index] = True

    def _call(self, index: int, number: int) -> None:
        call = PinnedCall()
        self.current[index] = call
        call.make(lambda: self.end(number))
        # What follows a call is ours: storing outcomes, freeing seats. Nothing may come here.
        kind = "returned" if call.error is None else type(call.error).__name__
        self.ends[kind] = self.ends.get(kind, 0) + sum(1 for _ in range(3)) // 3


def spin(number: int) -> int:
    for _ in range(random.randrange(60)):
        pass
    return number


def spin_and_raise(number: int) -> int:
    spin(number)
    raise Retry(5)


@pytest.mark.parametrize("end", [spin, spin_and_raise])
def test_in_a_storm_of_interruptions_none_comes_after_its_call_or_into_the_next(end: Any) -> None:
    for _ in range(5):
        storm = Storm(end)
        storm.run()
        assert storm.escaped == []
        if len(storm.ends) > 1:  # on a busy machine none, or each, may have come in time
            break
    kinds = {"DeadlinePassed", "returned" if end is spin else "Retry"}
    assert set(storm.ends) == kinds, storm.ends


def interrupted(function: Any) -> PinnedCall:
    """Interrupt a call once it says that it is there."""
    there = threading.Event()
    made: list[PinnedCall] = []

    def work() -> None:
        made.append(PinnedCall())
        made[0].make(lambda: function(there))

    thread = threading.Thread(target=work)
    thread.start()
    assert there.wait(10)
    with made[0].lock:
        made[0].interrupt()
    thread.join(10)
    assert not thread.is_alive()
    return made[0]


def test_a_call_that_runs_python_is_ended() -> None:
    def spins(there: threading.Event) -> None:
        there.set()
        while True:
            time.sleep(0.001)

    assert isinstance(interrupted(spins).error, DeadlinePassed)


def test_it_passes_by_those_who_catch_exceptions_and_reaches_those_who_clean_up() -> None:
    cleaned = []

    def spins(there: threading.Event) -> None:
        there.set()
        try:
            while True:
                try:
                    time.sleep(0.001)
                except Exception:
                    pass
        finally:
            cleaned.append(True)

    assert isinstance(interrupted(spins).error, DeadlinePassed)
    assert cleaned == [True]


def test_a_call_that_swallows_it_is_not_interrupted_again_and_ends_as_it_says() -> None:
    def swallows(there: threading.Event) -> str:
        there.set()
        try:
            while True:
                time.sleep(0.001)
        except DeadlinePassed:
            return "swallowed"

    assert (interrupted(swallows).value, interrupted(swallows).error) == ("swallowed", None)


def test_a_call_that_is_over_is_not_interrupted() -> None:
    call = PinnedCall()
    call.make(lambda: 5)
    with call.lock:
        call.interrupt()
    time.sleep(0.01)
    assert (call.inside, call.value, call.error) == (False, 5, None)


def test_a_call_is_not_left_between_being_looked_at_and_being_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    after: list[BaseException] = []
    calls: list[PinnedCall] = []
    made = threading.Event()
    going: list[bool] = []
    real = pinned._set_async_exception

    def work() -> None:
        try:
            calls.append(PinnedCall())
            made.set()
            calls[0].make(wait)
            for _ in range(20):
                time.sleep(0.01)
        except BaseException as error:
            after.append(error)

    def wait() -> bool:
        while not going:
            time.sleep(0.001)
        return True

    def set_late(thread: int, what: Any) -> None:
        going.append(True)
        time.sleep(0.1)
        real(thread, what)

    thread = threading.Thread(target=work)
    thread.start()
    assert made.wait(10)
    monkeypatch.setattr(pinned, "_set_async_exception", set_late)
    with calls[0].lock:
        calls[0].interrupt()
    thread.join(10)
    assert (after, calls[0].value) == ([], True)


class Late(PinnedCall):
    """Is interrupted when it keeps its error."""

    kept: BaseException | None = None
    times = 0

    @property
    def error(self) -> BaseException | None:
        return self.kept

    @error.setter
    def error(self, given: BaseException | None) -> None:
        self.times += 1
        if self.times == 3:  # after those of its making and of the call's beginning
            raise DeadlinePassed
        self.kept = given


def test_how_a_call_ended_is_kept_although_it_is_interrupted_in_its_last_moment() -> None:
    call = Late()
    call.make(lambda: spin_and_raise(1))
    assert isinstance(call.error, Retry)


class LateLeaving(PinnedCall):
    """Is interrupted when it has returned, and before it is left."""

    tries = 0

    def _leave(self) -> None:
        self.tries += 1
        if self.tries == 1:
            raise DeadlinePassed
        super()._leave()


@pytest.mark.parametrize("value", [None, 5])
def test_a_call_that_returned_before_it_was_interrupted_has_returned(value: int | None) -> None:
    call = LateLeaving()
    call.make(lambda: value)
    assert (call.tries, call.error, call.value) == (2, None, value)
