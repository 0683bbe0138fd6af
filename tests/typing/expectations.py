"""What type checkers say of jobs. Checked by mypy and pyright, never run: an ignore that is not needed is an error too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from django_jobs import Backoff, Cancel, Context, Fail, Retry, Snooze, job, schedule
from django_jobs.models import Job
from django_jobs.testing import (
    Ran,
    advance,
    assert_enqueued,
    assert_takes_effect_once,
    database_away,
    enqueued,
    immediate,
    lease_lost,
    run_jobs,
    worker_lost,
)
from django_jobs.texts import Text


@job
def bare(number: int, text: str = "", *, flag: bool = False) -> str:
    return text * number


@job()
def with_parentheses(number: int) -> int:
    return number


@job(
    name="shop.receipt",
    queue="mail",
    priority=5,
    max_attempts=5,
    backoff=Backoff(base=2),
    retry_on=(OSError,),
    fail_on=[ValueError, TypeError],
    timeout=timedelta(minutes=1),
)
def with_options(number: int, *rest: str) -> list[str]:
    return list(rest)


@job(takes_context=True, timeout=None)
def with_context(context: Context, order_id: int, *, note: str = "") -> str | Snooze:
    assert_type(context.attempt, int)
    assert_type(context.should_stop, bool)
    assert_type(context.slot, datetime | None)
    return note


@job(takes_context=False)
def with_outcome(number: int) -> Retry | Fail | Cancel | None:
    return None


@job
async def asynchronous(number: int) -> str:
    return str(number)


@job(takes_context=True)
async def asynchronous_with_context(context: Context, number: int) -> Snooze | None:
    return None


@schedule("30 2 * * *", args=[1], timezone="Europe/Berlin")
@schedule(every=timedelta(hours=1), name="hourly", kwargs={"number": 1}, missed="all", overlap="skip")
@job(queue="reports")
def scheduled(number: int, *, note: str = "") -> str:
    return note


@schedule("@daily")
@job(takes_context=True)
def scheduled_with_context(context: Context, number: int = 0) -> None:
    return None


def schedules() -> None:
    """A job with a schedule is the job that it was."""
    assert_type(scheduled(1, note="a"), str)
    assert_type(scheduled.enqueue(1, note="a"), Job)
    assert_type(scheduled_with_context.enqueue(number=1), Job)
    scheduled("1")  # type: ignore[arg-type]
    scheduled.enqueue()  # type: ignore[call-arg]
    scheduled.enqueue(1, color="red")  # type: ignore[call-arg]


def plain_scheduled(number: int) -> str:
    return ""


def schedules_that_are_refused() -> None:
    schedule("@daily")(plain_scheduled)  # type: ignore[type-var]
    schedule(scheduled)  # type: ignore[arg-type]
    schedule("@daily", "UTC")  # type: ignore[call-arg, arg-type]
    schedule("@daily", colour="red")  # type: ignore[arg-type]
    schedule(every="60")  # type: ignore[arg-type]
    schedule("@daily", missed="sometimes")  # type: ignore[arg-type]
    schedule("@daily", nonexistent="later")  # type: ignore[arg-type]
    schedule("@daily", args=5)  # type: ignore[arg-type]


def calls() -> None:
    """A job is called as the function that it is."""
    assert_type(bare(1), str)
    assert_type(bare(1, "a", flag=True), str)
    assert_type(with_parentheses(1), int)
    assert_type(with_options(1, "a", "b"), list[str])
    assert_type(with_outcome(1), Retry | Fail | Cancel | None)
    assert_type(bare.name, str)
    bare("1")  # type: ignore[arg-type]
    bare()  # type: ignore[call-arg]


def calls_with_context(context: Context) -> None:
    """Who takes the context is called with it and enqueued without it."""
    assert_type(with_context(context, 1, note="a"), str | Snooze)
    with_context(1)  # type: ignore[call-arg, arg-type]
    assert_type(with_context.enqueue(1, note="a"), Job)
    with_context.enqueue(context, 1)  # type: ignore[call-arg, arg-type]


def enqueues() -> None:
    """An enqueue is checked against the function's own signature."""
    assert_type(bare.enqueue(1), Job)
    assert_type(bare.enqueue(1, "a", flag=True), Job)
    assert_type(with_options.enqueue(1, "a", "b"), Job)
    assert_type(with_parentheses.enqueue(number=1), Job)
    bare.enqueue("1")  # type: ignore[arg-type]
    bare.enqueue(1, flag=2)  # type: ignore[arg-type]
    bare.enqueue()  # type: ignore[call-arg]
    bare.enqueue(1, "a", True)  # type: ignore[call-arg]
    bare.enqueue(1, color="red")  # type: ignore[call-arg]
    with_options.enqueue(1, 2)  # type: ignore[arg-type]


def enqueues_of_async_jobs() -> None:
    assert_type(asynchronous.enqueue(1), Job)
    assert_type(asynchronous_with_context.using(delay=1).enqueue(number=1), Job)
    asynchronous.enqueue("1")  # type: ignore[arg-type]
    asynchronous_with_context.enqueue()  # type: ignore[call-arg]


async def enqueues_from_async_code() -> None:
    assert_type(await asynchronous(1), str)
    assert_type(await bare.aenqueue(1), Job)
    assert_type(await with_context.using(delay=5).aenqueue(1), Job)
    await bare.aenqueue("1")  # type: ignore[arg-type]


def enqueues_many() -> None:
    """The calls of an `enqueue_many` are checked against the function's signature, and are calls of that function."""
    assert_type(bare.enqueue_many([bare.call(1), bare.using(priority=3).call(2, "a", flag=True)]), list[int])
    assert_type(bare.enqueue_many(bare.call(number) for number in range(3)), list[int])
    assert_type(with_context.enqueue_many((with_context.call(1, note="a"),)), list[int])
    bare.call("1")  # type: ignore[arg-type]
    bare.call()  # type: ignore[call-arg]
    bare.call(1, color="red")  # type: ignore[call-arg]
    with_options.call(1, 2)  # type: ignore[arg-type]
    bare.enqueue_many([with_parentheses.call(1)])  # type: ignore[list-item]
    bare.enqueue_many([1, 2])  # type: ignore[list-item]
    bare.enqueue_many(bare.call(1))  # type: ignore[arg-type]


async def enqueues_many_from_async_code() -> None:
    assert_type(await bare.aenqueue_many([bare.call(1)]), list[int])
    await bare.aenqueue_many([with_parentheses.call(1)])  # type: ignore[list-item]


def options() -> None:
    """What `using` returns is checked as the job itself; its options have names and types."""
    changed = bare.using(
        queue="mail",
        priority=8,
        run_at=datetime.now(UTC),
        delay=timedelta(minutes=5),
        idempotency_key="k",
        max_attempts=3,
        timeout=None,
        expires=timedelta(hours=1),
        unique="waiting",
    )
    assert_type(changed.enqueue(1), Job)
    assert_type(changed(1), str)
    assert_type(changed.using(delay=0.5).enqueue(1, flag=True), Job)
    changed.enqueue("1")  # type: ignore[arg-type]
    bare.using(queue=5)  # type: ignore[arg-type]
    bare.using(run_at="2030-01-01")  # type: ignore[arg-type]
    bare.using(delay="5")  # type: ignore[arg-type]
    bare.using(priority=None)  # type: ignore[arg-type]
    bare.using(unique="finished")  # type: ignore[arg-type]
    bare.using(expires="tomorrow")  # type: ignore[arg-type]
    bare.using(colour="red")  # type: ignore[call-arg]


def decorations() -> None:
    """Options of `@job` have names and types; a context is asked for by those who have a place for it."""

    def plain(number: int) -> int:
        return number

    job(queue=5)(plain)  # type: ignore[call-overload]
    job(colour="red")(plain)  # type: ignore[call-overload]
    job(tags=5)(plain)  # type: ignore[call-overload]
    job(durable="yes")(plain)  # type: ignore[call-overload]
    job(timeout="5")(plain)  # type: ignore[call-overload]
    job(retry_on=[5])(plain)  # type: ignore[list-item]
    job(takes_context=True)(plain)  # type: ignore[arg-type]


def outcomes() -> None:
    assert_type((Retry(5), Retry(timedelta(minutes=5), "reason"), Retry()), tuple[Retry, Retry, Retry])
    assert_type((Snooze(5.5), Fail("reason"), Cancel()), tuple[Snooze, Fail, Cancel])
    Snooze()  # type: ignore[call-arg]
    Retry("5")  # type: ignore[arg-type]
    Backoff(2, 3, 300)  # type: ignore[call-arg]


def rows(stored: Job) -> None:
    assert_type(stored.args, list[Any])
    assert_type(stored.kwargs, dict[str, Any])
    assert_type(stored.tags, list[str])
    assert_type(stored.explain(), Text)
    assert_type(stored.refresh(), Job)


def kit() -> None:
    """What the test kit takes and gives."""
    assert_type(run_jobs(types=[bare, with_context], queues=["mail"], ahead=timedelta(hours=1)), list[Ran])
    assert_type(run_jobs()[0].job, Job)
    assert_type(enqueued(with_context, kwargs={"order_id": 1}, delay=timedelta(0)), list[Job])
    assert_type(assert_enqueued("shop.receipt", times=0), list[Job])
    assert_type(assert_takes_effect_once(bare.enqueue(1), lambda: 5, replays=3), Ran)
    assert_type(advance(timedelta(hours=1)), datetime)
    with immediate(), worker_lost(bare, at="start"), database_away(), lease_lost(with_context, times=2):
        pass
    run_jobs(types=["shop.receipt", bare])
    run_jobs(types=[5])  # type: ignore[list-item]
    run_jobs(ahead=5)  # type: ignore[arg-type]
    enqueued(plain_scheduled)  # type: ignore[arg-type]
    assert_enqueued(bare, args=5)  # type: ignore[arg-type]
    assert_takes_effect_once(bare)
    assert_takes_effect_once(5)  # type: ignore[arg-type]
    advance(5)  # type: ignore[arg-type]
    worker_lost(at="middle")  # type: ignore[arg-type]
