"""Async jobs of the tests."""

from __future__ import annotations

import asyncio
import os
import threading

from asgiref.sync import sync_to_async

from django_jobs import Context, job
from tests import router
from tests.app.models import Effect


async def effect(key: str, run: int = 0) -> None:
    await Effect.objects.using(router.jobs_alias).acreate(key=key, run=run, pid=os.getpid())


@job(takes_context=True)
async def meet(context: Context, key: str, number: int) -> str:
    """Leave an effect, wait by asking the database until so many runs are here, and return the ORM's thread."""
    await effect(key, context.run)
    while await Effect.objects.using(router.jobs_alias).filter(key=key).acount() < number:
        await asyncio.sleep(0.01)
    return await sync_to_async(lambda: threading.current_thread().name)()


@job(takes_context=True)
async def report_while_async(context: Context) -> list[object]:
    context.progress(1, 2, "half")
    return [context.job_id, context.attempt, context.run, context.idempotency_key, context.should_stop]


@job(takes_context=True)
async def wait_until_cancelled(context: Context, key: str) -> None:
    """Leave "<key>:start", wait, and leave "<key>:cancelled" when that is what happens."""
    await effect(f"{key}:start", context.run)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await effect(f"{key}:cancelled", context.run)
        raise


@job(takes_context=True)
async def fork_asynchronously(context: Context, key: str) -> str:
    """Fork, and return in both processes."""
    pid = os.fork()
    if pid:
        await Effect.objects.using(router.jobs_alias).acreate(key=key, run=context.run, pid=pid)
    return key
