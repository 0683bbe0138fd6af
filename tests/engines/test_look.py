"""A look without locks, before a worker goes idle."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.app.jobs import leave_effect, nothing
from tests.engines.common import TYPES, alone, alter, beside_others, claim, clock, enqueue, ids, on_postgresql, order
from tests.threads import session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

BOTH = (*TYPES, leave_effect.name)


@alone
def test_where_nothing_waits_nothing_is_due(engine: Engine) -> None:
    assert engine.look(None, TYPES)[:2] == (None, False)
    enqueue(1)
    claim(engine)
    assert engine.look(None, TYPES)[:2] == (None, False)


@alone
def test_what_is_due_is_due_in_no_time(engine: Engine) -> None:
    nothing.using(delay=3600).enqueue()
    enqueue(1, queue="other")
    assert engine.look(None, TYPES)[:2] == (0.0, False)


@alone
def test_the_next_due_time_is_said_in_seconds(engine: Engine) -> None:
    nothing.using(delay=7200, priority=100).enqueue()
    nothing.using(delay=60, queue="other").enqueue()
    found = engine.look(None, TYPES)
    assert found.due_in == pytest.approx(60, abs=5)
    assert not found.parked


@alone
def test_only_the_queues_served_are_looked_at(engine: Engine) -> None:
    nothing.using(queue="a").enqueue()
    nothing.using(queue="b", delay=60).enqueue()
    assert engine.look(("none",), TYPES)[:2] == (None, False)
    assert engine.look(("b",), TYPES).due_in == pytest.approx(60, abs=5)
    assert engine.look(("b", "a"), TYPES)[:2] == (0.0, False)


@alone
def test_parked_jobs_are_said_to_be_there_for_those_who_know_their_type(engine: Engine) -> None:
    made = leave_effect.using(queue="a").enqueue("x")
    claim(engine)
    assert engine.look(None, TYPES)[:2] == (None, False)
    assert engine.look(None, BOTH)[:2] == (None, True)
    assert engine.look(("a",), BOTH)[:2] == (None, True)
    assert engine.look(("b",), BOTH)[:2] == (None, False)
    alter(engine, made.pk, run_at=clock(engine) + timedelta(hours=1))
    assert engine.look(None, BOTH)[:2] == (None, False)


@alone
def test_suspects_are_not_said_to_be_there(engine: Engine) -> None:
    (made,) = ids(enqueue(1))
    alter(engine, made, parked="suspect")
    assert engine.look(None, TYPES)[:2] == (None, False)


@on_postgresql
@beside_others
def test_what_another_worker_is_about_to_take_is_still_due(engine: Engine) -> None:
    enqueue(1)
    with session(engine.alias) as other:
        other.begin()
        other.do(lambda: claim(engine))
        assert engine.claim(order()).jobs == []
        assert engine.look(None, TYPES)[:2] == (0.0, False)
        other.commit()
    assert engine.look(None, TYPES)[:2] == (None, False)
