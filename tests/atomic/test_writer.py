"""What the writer does with the ends of atomic runs: those that are stored, and those of which only the row can tell."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from django_jobs.engines.base import Engine
from django_jobs.engines.causes import CONNECTION_BROKE
from django_jobs.engines.values import Done
from tests.harness import wait_for
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import claimed, desk, raised, states
from tests.threads import Session

pytestmark = with_tables


def test_a_run_that_is_stored_frees_its_seat_while_the_database_is_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = claimed(engine, 2)
    away = True

    def complete(done: Any) -> Any:
        if away:
            raise OperationalError("gone")
        return real(done)

    real = engine.complete
    monkeypatch.setattr(engine, "complete", complete)
    monkeypatch.setattr(engine, "probe", lambda timeout: not away)
    with desk(engine) as found:
        found.put((first, Done(first.run, "1")))
        wait_for(lambda: found.writer.away)
        found.put((second, Done(second.run, "2", "done")))
        wait_for(lambda: found.freed == [1], what="the seat of the second is free")
        assert found.region.counters()["done"] == 1
        away = False
    assert found.freed == [1, 0]
    assert states(engine, [first, second]) == [("done", 0, 0, 1), ("running", 0, 0, 1)]


@on_postgresql
@pytest.mark.parametrize("made", [True, False])
def test_a_commit_that_is_still_under_way_is_waited_for_and_not_guessed_about(
    engine: Engine, other: Session, made: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = claimed(engine, 2)
    other.begin()
    other.do(lambda: engine.complete([Done(first.run, '"late"')]))
    with caplog.at_level("INFO"), desk(engine, timeout=0.3) as found:
        found.put((first, raised(first, counts="loss", cause=CONNECTION_BROKE)))
        wait_for(lambda: found.writer._aside, what="it is put aside, and holds up no other")
        found.put((second, Done(second.run, "2")))
        wait_for(lambda: states(engine, [second]) == [("done", 0, 0, 1)])
        assert states(engine, [first]) == [("running", 0, 0, 1)]
        other.commit() if made else other.rollback()
        wait_for(lambda: sorted(found.freed) == [0, 1])
    expected = ("done", 0, 0, 1) if made else ("ready", 0, 1, 1)
    assert states(engine, [first]) == [expected]
    counts = {name: number for name, number in found.region.counters().items() if number}
    assert counts == ({"done": 2} if made else {"done": 1, "retried": 1})
    assert not [line for line in caplog.records if "Lost lease" in line.message]
    unheard = [line for line in caplog.records if "its COMMIT was made, though no answer came" in line.message]
    assert len(unheard) == int(made)
