"""Outcomes of durable jobs are written at once, and take those with them that were being gathered."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_jobs import job
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.workers import writer
from tests.harness import wait_for
from tests.processes.common import with_tables
from tests.processes.parts import Desk, claim, claimed, desk, raised, states

pytestmark = with_tables


@job(durable=True)
def lasting() -> None: ...


class Gathering(threading.Event):
    """The writer's event; notes each wait for more outcomes."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(timeout)


def patient(found: Desk) -> None:
    """Have a writer that has always reason to wait for more, and note when it does."""
    found.writer._busy = lambda: True
    found.writer._hurry = Gathering()


def waits(found: Desk) -> int:
    assert isinstance(found.writer._hurry, Gathering)
    return found.writer._hurry.waits


@pytest.fixture(autouse=True)
def pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GATHER_SECONDS", 3600.0)


@pytest.mark.parametrize("ending", ["done", "raised"])
def test_a_durable_outcome_is_not_gathered_and_ends_the_gathering_of_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    others = claimed(engine, 3)
    lasting.enqueue()
    (durable,) = claim(engine, 1)

    def outcome(run: Claimed) -> tuple[Claimed, Done | Settlement]:
        return run, Done(run.run, None) if ending == "done" else raised(run)

    name = "complete" if ending == "done" else "settle"
    written: list[int] = []
    real = getattr(engine, name)

    def write(items: Any, *more: Any) -> Any:
        written.append(len(items))
        return real(items, *more)

    monkeypatch.setattr(engine, name, write)
    with desk(engine, given=patient) as found:
        found.put(outcome(others[0]))
        wait_for(lambda: waits(found) == 1)
        found.put(outcome(others[1]))
        assert found.freed == []
        found.put(outcome(durable))
        wait_for(lambda: len(found.freed) == 3)
        # One statement for all that was there; and the next ones are gathered again.
        assert written == [3]
        found.put(outcome(others[2]))
        wait_for(lambda: waits(found) == 2)
        assert len(found.freed) == 3
    assert [status for status, *_ in states(engine, [*others, durable])] == [
        "done" if ending == "done" else "ready"
    ] * 4


def test_a_durable_outcome_alone_waits_for_no_other(engine: Engine) -> None:
    lasting.enqueue()
    (durable,) = claim(engine, 1)
    with desk(engine, given=patient) as found:
        found.put((durable, Done(durable.run, None)))
        wait_for(lambda: found.freed == [0])
    assert [status for status, *_ in states(engine, [durable])] == ["done"]
