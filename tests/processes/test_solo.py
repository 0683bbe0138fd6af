"""Who starts a process for a suspect, when and where; what such a process does is tried in test_suspects."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.workers.fallen import Fallen
from django_jobs.workers.heart import Heart
from django_jobs.workers.seats import Phase
from tests.app.jobs import nothing
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import Tables, claimed, plan
from tests.processes.test_draining import Manned

fast = pytest.mark.fast


@pytest.fixture
def manned(monkeypatch: pytest.MonkeyPatch) -> Manned:
    return Manned(monkeypatch, regions=2, solo=2)


# The crew.


@fast
def test_processes_for_suspects_have_places_of_their_own_and_are_no_more_than_are_allowed(manned: Manned) -> None:
    first, second, third, fourth = manned.crew.places
    assert [place.child is not None for place in manned.crew.places] == [True, False, False, False]
    assert manned.crew.start_solo(5) == 1
    assert manned.started() == [third]
    assert manned.crew.start_solo(5) == 0
    assert manned.man() == []
    assert [place.solo for place in (first, second, third, fourth)] == [False, False, True, True]


@fast
def test_none_is_started_while_there_is_no_suspect(manned: Manned) -> None:
    assert manned.crew.start_solo(0) == 0
    assert manned.started() == []


@fast
def test_a_killer_alone_delays_the_next_suspect_and_no_ordinary_process(manned: Manned) -> None:
    first, *_ = manned.crew.places
    for _ in range(3):
        assert manned.crew.start_solo(1) == 1
        (place,) = manned.started()
        manned.end(place, -11)
    assert manned.crew.start_solo(1) == 0
    manned.end(first, -9)
    assert len(manned.man()) == 1


@fast
def test_a_process_that_ran_its_suspect_to_the_end_delays_nothing(manned: Manned) -> None:
    for _ in range(10):
        assert manned.crew.start_solo(1) == 1
        (place,) = manned.started()
        manned.end(place, 0, Phase.ENDED)


@fast
def test_a_burst_is_not_over_while_a_suspect_is_run(manned: Manned) -> None:
    first, *_ = manned.crew.places
    first.region.set_phase(Phase.IDLE)
    assert manned.is_idle()
    manned.crew.start_solo(1)
    assert not manned.is_idle()
    (place,) = manned.started()
    place.region.set_phase(Phase.IDLE)
    assert not manned.is_idle()
    manned.end(place, 0, Phase.ENDED)
    assert manned.is_idle()


@fast
def test_a_suspect_that_does_not_end_at_its_deadline_gives_its_post_to_the_next_at_once(manned: Manned) -> None:
    manned.crew.start_solo(1)
    (place,) = manned.started()
    manned.seat(place, 0, 11)
    manned.look()
    assert place.draining_since is not None
    assert manned.crew.start_solo(1) == 1
    assert manned.started() == [manned.crew.places[3]]
    manned.look()
    assert manned.killed == [place]
    manned.end(place, -9)
    (fallen,) = manned.fallen
    assert fallen.late == {0}


@fast
def test_a_process_that_runs_one_suspect_is_replaced_at_no_limit() -> None:
    given = plan("default", threads=4, max_jobs_per_process=10, max_process_memory=1, solo_memory=2)
    alone, shared = given.of_process(solo=True).settings, given.of_process(solo=False).settings
    assert (alone.threads, alone.max_jobs_per_process, alone.max_process_memory, alone.solo_memory) == (
        1,
        None,
        None,
        2,
    )
    assert (shared.threads, shared.max_jobs_per_process, shared.max_process_memory) == (4, 10, 1)
    assert shared.solo_memory is None


# The supervisor's look.


def suspects(engine: Engine, *due: float) -> list[Job]:
    jobs = [nothing.enqueue() for _ in due]
    for job, seconds in zip(jobs, due, strict=True):
        run_at = Now() + timedelta(seconds=seconds)
        Job.objects.using(engine.alias).filter(pk=job.pk).update(suspect=True, parked="suspect", run_at=run_at)
    return jobs


def heart_of(tables: Tables, rings: list[float]) -> Heart:
    def ring() -> None:
        rings.append(time.monotonic())

    return Heart(tables.engine, tables.plan, tables.pulse, tables.rescuer, tables.outage, ring)


@with_tables
def test_a_look_counts_suspects_that_are_due_and_wakes_who_starts_processes(engine: Engine) -> None:
    rings: list[float] = []
    heart = heart_of(Tables(engine, solo_processes=2), rings)
    assert 6.9 < heart._look_for_suspects() < 10.01
    assert (heart.suspects, rings) == (0, [])
    suspects(engine, 2)
    assert 1.0 < heart._look_for_suspects() < 2.01
    assert (heart.suspects, rings) == (0, [])
    suspects(engine, -5)
    assert 1.0 < heart._look_for_suspects() < 2.01
    assert (heart.suspects, len(rings)) == (1, 1)
    # More than may run at once: the next look is made when one of them has ended.
    suspects(engine, -5, -5)
    assert heart._look_for_suspects() > 6.9
    assert heart.suspects == 2


@with_tables
def test_suspects_are_looked_for_at_once_when_a_process_has_ended(engine: Engine) -> None:
    tables = Tables(engine)
    heart = heart_of(tables, [])
    heart._tick()
    assert not heart._suspecting.is_due
    suspects(engine, -1)
    heart.rescue(Fallen(child=tables.child, seats=[], how=None, in_order=True, ours=True))
    heart._tick()
    assert heart.suspects == 1
    heart._link.close()  # it has time-outs that the test's own must not have


@on_postgresql
@with_tables
def test_suspects_are_looked_for_at_once_when_leases_ran_out(engine: Engine) -> None:
    tables = Tables(engine, lease=0.2, heartbeat=0.05)
    heart = heart_of(tables, [])
    heart._tick()
    claimed(engine, 1, "gone:1")
    Job.objects.using(engine.alias).update(locked_until=Now() - timedelta(seconds=1), losses=1)
    until = time.monotonic() + 5
    while not Job.objects.using(engine.alias).parked().exists():
        assert time.monotonic() < until
        heart._suspecting.due = time.monotonic() + 60
        heart._tick()
    assert heart.suspects == 1
    heart._link.close()


@with_tables
def test_a_burst_is_not_over_while_a_suspect_is_due(engine: Engine) -> None:
    heart = heart_of(Tables(engine), [])
    suspects(engine, 60)
    heart._question = 1
    heart._look()
    assert heart._answer == (1, True)
    suspects(engine, -1)
    heart._look()
    assert heart._answer == (1, False)
