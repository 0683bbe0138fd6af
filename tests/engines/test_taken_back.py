"""What is counted where jobs are taken back whose run can no longer end by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, transaction

from django_jobs.backoff import Backoff
from django_jobs.models import Job, Stat
from django_jobs.models.stat import COUNTERS
from django_jobs.queue import rescue
from django_jobs.queue.stats import Counted
from tests.app.jobs import nothing
from tests.engines.common import alone, alter, claim, clock, enqueue, running

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from django_jobs.engines.values import Run

pytestmark = [alone, pytest.mark.contract]


def counted(engine: Engine) -> list[tuple[str, str, dict[str, int], list[int]]]:
    """Return queue, type, what was counted and the attempts of each row."""
    return [
        (row.queue, row.type, {name: number for name in COUNTERS if (number := getattr(row, name))}, row.attempts)
        for row in Stat.objects.using(engine.alias).order_by("pk")
    ]


def ran_out(engine: Engine, run: Run, **values: Any) -> None:
    alter(engine, run.id, locked_until=clock(engine) - timedelta(seconds=5), **values)


def test_leases_that_ran_out_are_counted_by_queue_and_type_in_the_minute_in_which_they_are_taken_back(
    engine: Engine,
) -> None:
    enqueue(2)
    enqueue(1, queue="mail")
    for claimed in claim(engine, 3):
        ran_out(engine, claimed.run)
    before = clock(engine)
    assert rescue.reap(engine, 10) == 3
    found = sorted(counted(engine))
    assert [row[:3] for row in found] == [
        ("default", nothing.name, {"lease_expirations": 2}),
        ("mail", nothing.name, {"lease_expirations": 1}),
    ]
    minutes = {moment.replace(second=0, microsecond=0) for moment in (before, clock(engine))}
    assert set(Stat.objects.using(engine.alias).values_list("minute", flat=True)) <= minutes
    assert rescue.reap(engine, 10) == 0
    assert len(counted(engine)) == 2


def test_each_time_is_counted_in_a_row_of_its_own_that_nobody_else_writes(engine: Engine) -> None:
    for _ in range(2):
        (run,) = running(engine)
        ran_out(engine, run)
        rescue.reap(engine, 10)
    assert [row[2] for row in counted(engine)] == [{"lease_expirations": 1}] * 2


def test_what_is_not_taken_back_after_all_is_not_counted(engine: Engine) -> None:
    (run,) = running(engine)
    ran_out(engine, run)
    with transaction.atomic(using=engine.alias):
        rescue.reap(engine, 10)
        transaction.set_rollback(True, using=engine.alias)
    assert counted(engine) == []
    assert Job.objects.using(engine.alias).get().status == "running"


@pytest.mark.parametrize(("attempts", "number"), [(0, 0), (3, 3), (30, 9)])
def test_a_job_that_was_lost_too_often_counts_as_dead_in_the_attempt_that_it_did_not_end(
    engine: Engine, attempts: int, number: int
) -> None:
    (run,) = running(engine)
    ran_out(engine, run, losses=1, attempts=attempts)
    rescue.reap(engine, 2)
    assert [row[2:] for row in counted(engine)] == [
        ({"dead": 1, "lease_expirations": 1}, [int(index == number) for index in range(10)])
    ]


def test_a_job_that_died_too_often_counts_as_dead_and_as_no_lease_that_ran_out(engine: Engine) -> None:
    (run,) = running(engine)
    alter(engine, run.id, losses=1)
    rescue.lose(engine, [(run, 1.0)], cause="died", error="", worker="host:1", witnessed=False, max_uncounted=2)
    assert [row[2] for row in counted(engine)] == [{"dead": 1}]


def test_a_run_that_was_ended_with_its_process_in_its_last_attempt_counts_as_dead_in_that(engine: Engine) -> None:
    first, last = running(engine, 2)
    alter(engine, last.id, attempts=2, max_attempts=3)
    rescue.end_late(engine, [(first, 1.0), (last, 1.0)], "host:1", Backoff(), 10)
    assert [row[2:] for row in counted(engine)] == [({"dead": 1}, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0])]


def test_what_goes_back_without_harm_is_not_counted(engine: Engine) -> None:
    first, second, third = running(engine, 3)
    rescue.give_back(engine, [first], 10)
    rescue.cut(engine, [(second, 1.0)], "stopped", "stopped", "host:1", 10)
    rescue.lose(engine, [(third, 1.0)], cause="died", error="", worker="host:1", witnessed=False, max_uncounted=10)
    assert counted(engine) == []


def test_jobs_go_back_although_they_cannot_be_counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DatabaseError("no such column")

    monkeypatch.setattr(Counted, "store", refuse)
    (run,) = running(engine)
    ran_out(engine, run)
    assert rescue.reap(engine, 10) == 1
    assert Job.objects.using(engine.alias).get().status == "ready"
