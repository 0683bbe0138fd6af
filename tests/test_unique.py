"""How long an idempotency key holds, on each database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs import EnqueueTimeout, IdempotencyConflict, pause
from django_jobs.engines.values import Claimed, Done, released
from django_jobs.models import Job
from tests.app.models import Effect
from tests.engines.common import alone, alter, beside_others, claim, claim_one, clock, on_postgresql, order, settled
from tests.enqueues import jobs, keyed, take
from tests.threads import Session, session, together, wait_for_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine

TYPES = (take.name,)
MODES = ["window", "unfinished", "waiting"]


def one(engine: Engine) -> Claimed:
    (claimed,) = claim(engine, types=TYPES)
    return claimed


def settle(engine: Engine, **values: Any) -> None:
    ((_, status),) = engine.settle([settled(one(engine).run, **values)], 10).items()
    assert status == values.get("status", "ready")


def expire(engine: Engine, job: Job) -> None:
    alter(engine, job.pk, expires_at=clock(engine))


def sweep(engine: Engine, job: Job) -> None:
    expire(engine, job)
    assert engine.cancel_expired(10) == 1


def meet_expired(engine: Engine, job: Job) -> None:
    expire(engine, job)
    assert one(engine).expired


def cancel_running(engine: Engine, job: Job) -> None:
    run = one(engine).run
    job.cancel()
    assert engine.complete([Done(run, None)]) == {job.pk: "cancelled"}


def park(engine: Engine, job: Job) -> None:
    assert engine.claim(order(types=())).parked == 1


def park_and_claim(engine: Engine, job: Job) -> None:
    park(engine, job)
    assert len(engine.claim_parked(order(types=TYPES)).jobs) == 1


def pause_and_park(engine: Engine, job: Job) -> None:
    pause(type=take.name)
    assert engine.claim(order(types=TYPES)).parked == 1


# What happens to the job that has the key, and in which modes it has it afterwards.
FATES: dict[str, tuple[Callable[[Engine, Job], Any], list[str]]] = {
    "waits": (lambda engine, job: None, MODES),
    "waits for its time": (lambda engine, job: alter(engine, job.pk, run_at=clock(engine).replace(year=2090)), MODES),
    "parked": (park, MODES),
    "parked by a pause": (pause_and_park, MODES),
    "runs": (lambda engine, job: one(engine), ["window", "unfinished"]),
    "runs after it was parked": (park_and_claim, ["window", "unfinished"]),
    "claimed, expired": (meet_expired, ["window", "unfinished"]),
    "given back": (lambda engine, job: engine.settle([released(one(engine).run)], 10), ["window", "unfinished"]),
    "waits for a retry": (lambda engine, job: settle(engine, counts="attempt", delay=60), ["window", "unfinished"]),
    "lost": (lambda engine, job: settle(engine, counts="loss"), ["window", "unfinished"]),
    "done": (lambda engine, job: engine.complete([Done(one(engine).run, None)]), ["window"]),
    "done with much": (lambda engine, job: engine.complete([Done(one(engine).run, f'"{"x" * 30_000}"')]), ["window"]),
    "dead": (lambda engine, job: settle(engine, status="dead", counts="attempt"), ["window"]),
    "failed": (lambda engine, job: settle(engine, status="failed"), ["window"]),
    "cancelled by itself": (lambda engine, job: settle(engine, status="cancelled"), ["window"]),
    "cancelled while it waits": (lambda engine, job: job.cancel(), ["window"]),
    "cancelled while it runs": (cancel_running, ["window"]),
    "expired": (sweep, ["window"]),
}


@alone
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("mode", MODES)
def test_a_key_holds_as_long_as_its_mode_says(engine: Engine, mode: Any, fate: str, many: bool) -> None:
    befall, holding = FATES[fate]
    found = keyed.using(unique=mode)

    def ask(argument: int) -> int:
        return found.enqueue_many([found.call(argument)])[0] if many else found.enqueue(argument).pk

    first = keyed.using(unique=mode).enqueue(1)
    befall(engine, first)
    if mode in holding:
        assert ask(1) == first.pk
        with pytest.raises(IdempotencyConflict):
            ask(2)
        assert jobs(engine) == [first]
    else:
        second = ask(2)
        assert [job.pk for job in jobs(engine)] == [first.pk, second]
        assert ask(2) == second
    assert first.refresh().idempotency_key == ("k" if mode in holding else None)


@alone
def test_the_job_that_has_the_key_says_how_long_it_holds(engine: Engine) -> None:
    first = keyed.enqueue(1)
    assert keyed.using(unique="waiting").enqueue(1) == first
    one(engine)
    assert keyed.using(unique="waiting").enqueue(1) == first


@alone
@pytest.mark.parametrize("mode", MODES)
def test_only_a_key_that_stands_for_this_job_alone_goes_to_other_systems(engine: Engine, mode: Any) -> None:
    keyed.using(unique=mode).enqueue(1)
    assert one(engine).idempotency_key == ("k" if mode == "window" else None)


# Several at once.


@beside_others
@pytest.mark.parametrize("mode", MODES)
def test_of_forty_who_ask_at_once_and_half_of_whom_are_rolled_back_one_makes_the_job(engine: Engine, mode: Any) -> None:
    asked = keyed.using(unique=mode)

    def ask(number: int) -> tuple[bool, int]:
        commits = number % 2 == 0
        with transaction.atomic(using=engine.alias):
            made = asked.enqueue_many([asked.call(1)])[0] if number % 4 < 2 else asked.enqueue(1).pk
            transaction.set_rollback(not commits, using=engine.alias)
        return commits, made

    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 30}):
        answers = together([partial(ask, number) for number in range(40)])
    (made,) = jobs(engine)
    assert {pk for commits, pk in answers if commits} == {made.pk}


def ask_in_a_transaction(engine: Engine, caller: Session, many: bool) -> int:
    """Write something that the job is to see, then ask for the job; the transaction stays open."""
    asked = keyed.using(unique="waiting")

    def ask() -> int:
        Effect.objects.using(engine.alias).create(key="written before")
        return asked.enqueue_many([asked.call(1)])[0] if many else asked.enqueue(1).pk

    caller.begin()
    return caller.do(ask)


@on_postgresql
@beside_others
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_a_waiting_job_is_not_claimed_before_those_who_rely_on_it_have_committed(
    engine: Engine, other: Session, many: bool
) -> None:
    holder = keyed.using(unique="waiting").enqueue(1)
    with session(engine.alias) as third:
        # Neither waits for the other.
        assert ask_in_a_transaction(engine, other, many) == holder.pk
        assert ask_in_a_transaction(engine, third, many) == holder.pk
        assert claim(engine, types=TYPES) == []
        other.commit()
        assert claim(engine, types=TYPES) == []
        third.commit()
    assert Effect.objects.using(engine.alias).count() == 2
    assert one(engine).id == holder.pk


@on_postgresql
@beside_others
def test_a_caller_that_is_rolled_back_holds_the_job_no_longer(engine: Engine, other: Session) -> None:
    holder = keyed.using(unique="waiting").enqueue(1)
    with transaction.atomic(using=engine.alias):
        with transaction.atomic(using=engine.alias):
            keyed.using(unique="waiting").enqueue(1)
            transaction.set_rollback(True, using=engine.alias)
        assert [claimed.id for claimed in other.do(partial(claim, engine, types=TYPES))] == [holder.pk]


@on_postgresql
@beside_others
@pytest.mark.parametrize("mode", ["window", "unfinished"])
def test_a_job_whose_key_holds_longer_is_not_held_back(engine: Engine, other: Session, mode: Any) -> None:
    holder = keyed.using(unique=mode).enqueue(1)
    assert ask_in_a_transaction(engine, other, False) == holder.pk
    assert one(engine).id == holder.pk


@on_postgresql
@beside_others
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_who_asks_while_the_job_is_being_claimed_makes_a_new_one(engine: Engine, other: Session, many: bool) -> None:
    holder = keyed.using(unique="waiting").enqueue(1)
    other.begin()
    assert other.do(partial(claim_one, engine, types=TYPES)).id == holder.pk
    with session(engine.alias) as third:
        third.begin()
        asked = keyed.using(unique="waiting")
        waiting = third.start(lambda: asked.enqueue_many([asked.call(2)])[0] if many else asked.enqueue(2).pk)
        wait_for_blocked()
        other.commit()
        assert waiting.result(10) > holder.pk
        third.commit()
    assert [job.args for job in jobs(engine)] == [[1], [2]]


@on_postgresql
@beside_others
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_a_job_that_somebody_holds_is_waited_for_a_bounded_time(engine: Engine, other: Session, many: bool) -> None:
    asked = keyed.using(unique="waiting")
    holder = asked.enqueue(1)
    other.begin()
    other.sql("SELECT 1 FROM django_jobs_job FOR NO KEY UPDATE")
    with override_settings(DJANGO_JOBS={"ENQUEUE_TIMEOUT": 0.05}), transaction.atomic(using=engine.alias):
        with pytest.raises(EnqueueTimeout, match=r"holds the idempotency key 'k' and did not end within 0\.05 s"):
            asked.enqueue_many([asked.call(1)]) if many else asked.enqueue(1)
        after = take.enqueue(2)
    other.rollback()
    assert jobs(engine) == [holder, after]


@beside_others
def test_outside_a_transaction_all_that_was_written_is_there_and_nothing_is_held(engine: Engine) -> None:
    holder = keyed.using(unique="waiting").enqueue(1)
    assert keyed.using(unique="waiting").enqueue(1) == holder
    assert one(engine).id == holder.pk
