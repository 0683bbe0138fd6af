"""One job for each way to an effect that takes place once. The effect is a row without any constraint."""

from __future__ import annotations

from django.db import transaction

from django_jobs import Context, job, once, outside
from tests import router
from tests.app.jobs import effect, nothing


@job(takes_context=True)
def by_once(context: Context, key: str) -> int:
    with transaction.atomic(using=router.jobs_alias), once(f"once:{key}") as first:
        if first:
            effect(key, context.run)
            nothing.enqueue(context.run)
            first.result = context.run
    return int(first.result)


@job(takes_context=True)
def by_outside(context: Context, key: str) -> int:
    with outside(f"outside:{key}") as call:
        if not call.answered:
            other_side(f"{key}, {'may have happened' if call.may_have_happened else 'new'}", context.run)
            call.result = context.run
    return int(call.result)


@job(takes_context=True, atomic=True)
def by_transaction(context: Context, key: str) -> int:
    effect(key, context.run)
    nothing.enqueue(context.run)
    return context.run


def other_side(key: str, run: int) -> None:
    """Count a call, as a system does that knows no keys."""
    effect(key, run)
