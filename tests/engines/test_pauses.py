"""What a claim, a claim of what is parked, and a look do while queues and types are paused."""

from __future__ import annotations

from concurrent.futures import wait
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections, transaction
from django.db.models.functions import Now

from django_jobs import InvalidJob, InvalidJobType, pause, resume
from django_jobs.engines.values import ClaimResult
from django_jobs.models import Job, Pause
from tests.app.jobs import leave_effect, nothing, report
from tests.engines.common import (
    TYPES,
    alone,
    alter,
    beside_others,
    claim,
    clock,
    enqueue,
    ids,
    on_postgresql,
    order,
    row,
    rows,
)
from tests.threads import session, together

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from django_jobs.engines.base import Engine

BOTH = (*TYPES, leave_effect.name)
NONE = ClaimResult([], 0, 0)


def parked(engine: Engine, types: tuple[str, ...] = BOTH, limit: int = 10, **options: Any) -> list[int]:
    return ids(engine.claim_parked(order(limit, types=types, **options)).jobs)


def end(engine: Engine) -> None:
    """Let the time pass until which something is paused."""
    assert Pause.objects.using(engine.alias).update(until=Now() - timedelta(seconds=1)) == 1


# Queues.


@alone
def test_nothing_of_a_paused_queue_is_claimed_parked_or_written_until_it_is_resumed(engine: Engine) -> None:
    made = enqueue(3, queue="mail")
    (other,) = enqueue(1)
    before = rows(engine)
    pause(queue="mail")
    assert ids(claim(engine, 10)) == [other.pk]
    assert engine.claim(order(10)) == engine.claim_parked(order(10)) == NONE
    assert rows(engine)[:3] == before[:3]
    assert engine.look(None, TYPES)[:2] == (None, False)
    assert resume(queue="mail") is True
    assert rows(engine)[:3] == before[:3]
    assert engine.look(None, TYPES)[:2] == (0.0, False)
    assert ids(claim(engine, 10)) == ids(made)


@alone
def test_a_type_of_the_name_of_a_paused_queue_is_not_paused(engine: Engine) -> None:
    pause(queue="tests.app.jobs.nothing")
    pause(type="default")
    (made,) = enqueue(1)
    assert ids(claim(engine)) == [made.pk]


@alone
def test_what_is_parked_for_an_unknown_type_waits_while_its_queue_is_paused(engine: Engine) -> None:
    made = leave_effect.using(queue="mail").enqueue("x")
    assert engine.claim(order(10)) == ClaimResult([], 1, 1)
    pause(queue="mail")
    assert (parked(engine), engine.look(None, BOTH)[:2]) == ([], (None, False))
    resume(queue="mail")
    assert engine.look(None, BOTH)[:2] == (None, True)
    assert parked(engine) == [made.pk]


# Types.


@alone
def test_jobs_of_a_paused_type_are_parked_once_with_their_place_and_claimed_where_they_are(engine: Engine) -> None:
    made = ids(enqueue(3))
    other = leave_effect.enqueue("x")
    before = {job_id: row(engine, job_id) for job_id in made}
    pause(type=nothing)
    found = engine.claim(order(10, types=BOTH))
    assert (ids(found.jobs), found.parked, found.unknown) == ([other.pk], 3, 0)
    assert engine.claim(order(10, types=BOTH)) == NONE
    for job_id in made:
        assert row(engine, job_id) == before[job_id] | {"parked": "pause"}
    assert (parked(engine), engine.look(None, BOTH)[:2]) == ([], (None, False))
    assert resume(type=nothing) is True
    assert {row(engine, job_id)["parked"] for job_id in made} == {"pause"}
    assert engine.look(None, BOTH)[:2] == (None, True)
    assert parked(engine) == made
    assert {row(engine, job_id)["parked"] for job_id in made} == {None}


@alone
def test_a_paused_type_that_is_unknown_here_is_parked_as_unknown(engine: Engine) -> None:
    leave_effect.enqueue("x")
    pause(type=leave_effect)
    assert engine.claim(order(10)) == ClaimResult([], 1, 1)
    assert parked(engine) == []
    resume(type=leave_effect)
    assert len(parked(engine)) == 1


@alone
def test_of_what_is_parked_the_urgent_comes_first_whatever_its_type_and_queue(engine: Engine) -> None:
    jobs: list[tuple[str, Any, str]] = [("a", nothing, "x"), ("b", report, "y"), ("c", report, "a")]
    made = {
        (name, priority): job.using(priority=priority, queue=queue).enqueue(1)
        for name, job, queue in jobs
        for priority in (0, 50)
    }
    types = (nothing.name, report.name)
    assert engine.claim(order(10, types=())).parked == 6
    taken = [job_id for _ in range(3) for job_id in parked(engine, types, 2)]
    assert set(taken[:3]) == {made[name, 50].pk for name in "abc"}
    assert set(taken[3:]) == {made[name, 0].pk for name in "abc"}


@alone
def test_one_type_with_many_parked_jobs_does_not_keep_another_types_waiting(engine: Engine) -> None:
    enqueue(30)
    other = leave_effect.enqueue("x")
    assert engine.claim(order(50, types=())).parked == 31
    alter(engine, other.pk, run_at=clock(engine) - timedelta(hours=1))
    assert parked(engine, BOTH, 1) == [other.pk]


# How long.


@alone
@pytest.mark.parametrize("what", [{"queue": "mail"}, {"type": nothing}])
def test_a_pause_that_has_an_end_is_over_by_itself(engine: Engine, what: dict[str, Any]) -> None:
    (made,) = ids(enqueue(1, queue="mail"))
    found = pause(**what, until=3600)
    assert found.until is not None
    assert abs((found.until - clock(engine)).total_seconds() - 3600) < 30
    assert engine.claim(order(10)).jobs == []
    end(engine)
    assert ids(claim(engine)) + parked(engine) == [made]
    assert resume(**what) is False
    assert not Pause.objects.using(engine.alias).exists()


@alone
def test_pausing_what_is_paused_replaces_the_pause(engine: Engine) -> None:
    first = pause(queue="mail", until=timedelta(hours=1), why="one", by="ada")
    Pause.objects.using(engine.alias).update(created_at=Now() - timedelta(hours=1))
    second = pause(queue="mail", why="two", by="bob")
    assert (second.pk, second.until, second.why, second.by) == (first.pk, None, "two", "bob")
    assert abs((second.created_at - clock(engine)).total_seconds()) < 30
    pause(queue="mail", until=60)
    assert Pause.objects.using(engine.alias).get().why == ""
    assert resume(queue="mail") is True
    assert resume(queue="mail") is False


@alone
def test_a_pause_belongs_to_the_callers_transaction(engine: Engine) -> None:
    (made,) = ids(enqueue(1))
    with transaction.atomic(using=engine.alias):
        pause(queue="default")
        transaction.set_rollback(True, using=engine.alias)
    assert ids(claim(engine)) == [made]


@alone
@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, InvalidJob, "queue is None and type is None; give one of them"),
        ({"queue": "a", "type": "b"}, InvalidJob, "queue is 'a' and type is 'b'; give one of them"),
        ({"queue": "a b"}, InvalidJob, "'a b' has a comma, a space"),
        ({"type": ""}, InvalidJob, "type is '' of 0 characters"),
        ({"type": 5}, InvalidJobType, "type is 5; give text"),
        ({"queue": "a", "until": 0}, InvalidJob, "until is 0; give seconds over 0"),
        ({"queue": "a", "until": -1}, InvalidJob, "until is -1; give seconds from 0"),
        ({"queue": "a", "until": "soon"}, InvalidJobType, "until is 'soon'; give a datetime"),
        ({"queue": "a", "why": None}, InvalidJobType, "why is None; give text"),
    ],
)
def test_what_cannot_be_paused_is_refused_with_the_value(
    engine: Engine, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        pause(**given)
    assert not Pause.objects.using(engine.alias).exists()


@alone
def test_an_end_that_is_past_by_the_databases_clock_is_refused_and_leaves_an_older_pause(engine: Engine) -> None:
    pause(queue="mail", why="before")
    with pytest.raises(InvalidJob, match="past by the database's clock"):
        pause(queue="mail", until=clock(engine) - timedelta(seconds=1), why="after")
    assert Pause.objects.using(engine.alias).get().why == "before"


@alone
def test_an_end_holds_where_the_project_has_no_time_zones(engine: Engine, settings: Any) -> None:
    (made,) = ids(enqueue(1))
    end_at = clock(engine).replace(microsecond=0) + timedelta(hours=1)
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    try:
        pause(queue="default", until=end_at)
        pause(type=nothing, until=end_at.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None))
        assert claim(engine) == []
        explained = Job.objects.using(engine.alias).get().explain()
    finally:
        settings.USE_TZ, settings.TIME_ZONE = True, "UTC"
    assert explained.count("ago for another 60 min") == 2
    assert {row.until for row in Pause.objects.using(engine.alias).all()} == {end_at}
    assert claim(engine) == []
    assert row(engine, made)["parked"] is None


# Beside others.


@on_postgresql
@beside_others
def test_a_claim_that_began_before_the_pause_committed_may_take_and_the_next_one_does_not(engine: Engine) -> None:
    first, second, third = ids(enqueue(3))
    with session(engine.alias) as other:
        other.begin()
        other.do(partial(pause, queue="default"))
        assert ids(claim(engine)) == [first]
        other.commit()
        assert claim(engine) == []
        other.begin()
        other.do(partial(resume, queue="default"))
        assert claim(engine) == []
        other.commit()
    assert ids(claim(engine, 2)) == [second, third]


@beside_others
@pytest.mark.parametrize("ended", [True, False])
def test_a_pause_that_is_made_while_another_is_resumed_stays(engine: Engine, ended: bool) -> None:
    pause(queue="mail", until=3600, by="ada")
    if ended:
        end(engine)
    with session(engine.alias) as other:
        late: list[Future[Pause]] = []

        def pause_after_the_first(execute: Any, sql: str, *rest: Any) -> Any:
            result = execute(sql, *rest)
            if sql.startswith("DELETE") and not late:
                late.append(other.start(partial(pause, queue="mail", by="bob")))
                wait(late, 0.2)  # it is there now, or waits for our transaction
            return result

        with connections[engine.alias].execute_wrapper(pause_after_the_first):
            assert resume(queue="mail") is not ended
        late[0].result(10)
    assert [row.by for row in Pause.objects.using(engine.alias).in_force()] == ["bob"]


@beside_others
def test_two_who_pause_the_same_at_once_make_one_pause(engine: Engine) -> None:
    together([partial(pause, queue="mail", by=name) for name in ("ada", "bob", "eve")])
    assert Pause.objects.using(engine.alias).count() == 1


@beside_others
def test_pausing_and_resuming_beside_claims_loses_no_job_and_takes_none_twice(engine: Engine) -> None:
    made = ids(enqueue(60))

    def drain(number: int) -> list[int]:
        taken: list[int] = []
        for _ in range(200):
            taken += ids(claim(engine, 2, locked_by=f"w:{number}"))
            taken += parked(engine, TYPES, 2, locked_by=f"w:{number}")
        return taken

    def toggle() -> list[int]:
        for _ in range(20):
            pause(type=nothing)
            resume(type=nothing)
        return []

    calls: list[Callable[[], list[int]]] = [partial(drain, 1), partial(drain, 2), toggle]
    taken = [*together(calls), drain(3)]  # a pause may have been in force while those beside it claimed
    assert sorted(job_id for part in taken for job_id in part) == made
    assert not Job.objects.using(engine.alias).parked().exists()
