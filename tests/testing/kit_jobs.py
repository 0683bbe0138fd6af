"""Jobs on which the test kit is tried; what they leave is counted in rows of Effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core import mail
from django.db import connections, transaction

from django_jobs import Backoff, Context, Fail, Retry, Snooze, job, once, outside
from tests import router
from tests.app.jobs import effect
from tests.app.models import Effect, Ruled


@job(takes_context=True)
def leave(context: Context, key: str) -> str:
    effect(key, context.run)
    return key


@job(atomic=True, takes_context=True)
def leave_atomically(context: Context, key: str, error: str = "") -> str:
    effect(key, context.run)
    assert not context.should_stop
    context.progress(1, 2, "half")
    if error:
        raise RuntimeError(error)
    leave.enqueue(f"{key} follows")
    return key


@job
def leave_once(key: str) -> bool:
    with transaction.atomic(using=router.jobs_alias), once(key) as first:
        if first:
            effect(key)
        return bool(first)


@job(takes_context=True)
def ask(context: Context, key: str) -> bool:
    with outside(context.idempotency_key) as call:
        if not call.answered:
            mail.EmailMessage("asked", to=[key]).send()
            call.result = key
        return call.may_have_happened


@job(takes_context=True, max_attempts=3, backoff=Backoff(base=600, cap=600))
def fail_before(context: Context, attempt: int) -> int:
    effect("tried", context.run)
    if context.attempt < attempt:
        raise LookupError(f"attempt {context.attempt}")
    return context.attempt


@job
def break_a_rule(key: str, swallowed: bool = False) -> None:
    """Leave an effect, then write what is there already."""
    effect(key)
    Ruled.objects.using(router.jobs_alias).create(name="taken")
    try:
        with connections[router.jobs_alias].cursor() as cursor:
            cursor.execute("INSERT INTO app_ruled (name) VALUES ('taken')")
    except Exception:
        if not swallowed:
            raise


@job(atomic=True)
def break_a_rule_at_the_end(key: str) -> None:
    """Refer to what is not there, which the database finds when the transaction is to be committed."""
    effect(key)
    Ruled.objects.using(router.jobs_alias).create(name=key, other_id=-1)


@job
def leave_open(key: str) -> None:
    transaction.atomic(using=router.jobs_alias).__enter__()
    effect(key)


@job
def end(how: str) -> Any:
    return {"retry": Retry(60), "snooze": Snooze(timedelta(hours=2)), "fail": Fail("no")}[how]


@job
def enqueue_when_committed(key: str, error: bool = False) -> None:
    with transaction.atomic(using=router.jobs_alias):
        transaction.on_commit(lambda: leave.enqueue(key) and None, using=router.jobs_alias)
        assert not leave_count(key)
    if error:
        raise LookupError(key)


def leave_count(key: str) -> int:
    return Effect.objects.using(router.jobs_alias).filter(key=key).count()


@job
async def leave_async(key: str) -> str:
    await Effect.objects.using(router.jobs_alias).acreate(key=key)
    await leave.aenqueue(f"{key} follows")
    return key


@job(takes_context=True)
def cancelled_by_itself(context: Context) -> bool:
    from django_jobs.models import Job

    before = context.should_stop
    Job.objects.using(router.jobs_alias).get(pk=context.job_id).cancel(why="enough")
    return not before and context.should_stop


@job(takes_context=True)
def describe_itself(context: Context, key: str, *, number: int = 1) -> list[Any]:
    return [context.job_type, context.queue, context.arguments]


@job
def again() -> None:
    again.enqueue()


@job
def step(key: str) -> None:
    effect(key)


@job
def enqueue_step(key: str) -> None:
    effect(key)
    step.enqueue(key)


@job
def enqueue_and_look(key: str) -> str:
    """Tell what a job came to as soon as it was enqueued."""
    return str(step.enqueue(key).refresh().status)


@job
def with_default(key: str, number: int = 1) -> None:
    effect(key)
