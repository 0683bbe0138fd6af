"""What is counted of what waits, runs and is dead."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections

from django_jobs import pause, resume
from django_jobs.engines.base import Engine
from django_jobs.engines.depths import LaneDepth, QueueDepth, depths
from tests.acts import in_state
from tests.app.jobs import nothing
from tests.engines.common import alone, alter, clock, on_postgresql
from tests.engines.test_plans import FINISHED, UNFINISHED, read
from tests.plans import watched

pytestmark = alone


def test_each_queue_says_what_is_due_later_parked_suspect_and_running_and_the_age_of_the_oldest(engine: Engine) -> None:
    for status in ("running", "dead", "failed", "done", "cancelled"):
        in_state(engine, status)
    in_state(engine, "parked")
    suspect = in_state(engine, "ready")
    alter(engine, suspect.pk, parked="suspect")
    in_state(engine, "scheduled")
    for priority in (0, 0, 5):
        nothing.using(priority=priority).enqueue(1)
    old = nothing.using(queue="mail").enqueue(1)
    alter(engine, old.pk, run_at=clock(engine) - timedelta(seconds=100))
    found = depths(engine, 1000)
    assert (found.dead, found.failed, found.dead_letters) == (1, 1, 2)
    default, mail = found.queues
    assert default.oldest is not None
    assert default.oldest < 60
    default.oldest = None
    assert default == QueueDepth("default", due=3, later=1, parked=1, suspects=1, running=1)
    assert mail.due == 1
    assert mail.oldest is not None
    assert 100 <= mail.oldest < 160
    assert found.oldest == mail.oldest
    assert [(lane.queue, lane.priority, lane.due, lane.later) for lane in found.lanes] == [
        ("default", 5, 1, 0),
        ("default", 0, 2, 1),
        ("mail", 0, 1, 0),
    ]


def test_of_an_empty_table_nothing_is_counted(engine: Engine) -> None:
    found = depths(engine, 10)
    assert (found.lanes, found.queues, found.dead_letters, found.oldest) == ([], [], 0, None)


def test_a_lane_of_nothing_due_has_no_oldest(engine: Engine) -> None:
    in_state(engine, "scheduled", priority=-7)
    assert depths(engine, 10).lanes == [LaneDepth("default", -7, 0, 1, None)]


def test_what_a_pause_had_parked_waits_again_once_it_is_over_and_not_before(engine: Engine) -> None:
    held = nothing.using(queue="mail", priority=3).enqueue(1)
    alter(engine, held.pk, parked="pause", run_at=clock(engine) - timedelta(seconds=100))
    unknown = in_state(engine, "parked")
    alter(engine, unknown.pk, run_at=clock(engine) - timedelta(seconds=900))
    pause(type=nothing)
    assert depths(engine, 10).oldest is None
    resume(type=nothing)
    found = depths(engine, 10)
    assert found.oldest is not None
    assert 100 <= found.oldest < 160
    assert [(lane.queue, lane.priority, lane.due) for lane in found.lanes] == [("mail", 3, 0)]
    assert [(queue.queue, queue.parked) for queue in found.queues] == [("default", 1), ("mail", 1)]
    # However few are counted, and though others of its type were parked for another reason.
    before = nothing.using(queue="mail", priority=3).enqueue(2)
    alter(engine, before.pk, parked="type", run_at=clock(engine) - timedelta(seconds=500))
    assert 100 <= (depths(engine, 1).oldest or 0) < 160
    alter(engine, held.pk, run_at=clock(engine) + timedelta(seconds=100))
    assert depths(engine, 10).oldest is None


@on_postgresql
def test_nothing_is_counted_beyond_the_limit_and_what_reached_it_says_so(engine: Engine) -> None:
    for _ in range(4):
        nothing.enqueue(1)
    nothing.using(queue="mail").enqueue(1)
    default, mail = depths(engine, 3).queues
    assert (default.due, default.is_capped) == (3, True)
    assert (mail.due, mail.is_capped) == (1, False)


@on_postgresql
def test_counting_reads_no_more_than_the_limit_of_each_lane(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        for statement in (FINISHED, UNFINISHED, "ANALYZE django_jobs_job"):
            cursor.execute(statement, [])
    with watched(engine.alias) as nodes:
        depths(engine, 50)
    assert 0 < read(nodes) < 5_000
