"""Jobs for storms: each leaves its effects in a plain table, where one that took place twice is there twice."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from django.db import transaction

from django_jobs import Context, job, once
from tests import router
from tests.app.models import Effect
from tests.app.process_jobs import wait_for_path

# Nothing else ends a handler that waits for the answer to a COMMIT of its own, when it is swallowed.
SECONDS = 10


def effect(key: str, run: int) -> None:
    Effect.objects.using(router.jobs_alias).create(key=key, run=run, pid=os.getpid())


def work() -> None:
    """Take a while, so that a fault may come in the middle."""
    time.sleep(random.uniform(0.0, 0.05))


def fail_at_first(context: Context, number: int) -> None:
    """Raise in the first attempt of every tenth job."""
    if number % 10 == 3 and context.attempt == 1:
        raise RuntimeError("the first attempt fails")


@job(atomic=True, takes_context=True, timeout=SECONDS)
def pay(context: Context, number: int) -> None:
    """Have an effect and enqueue a follow-up, both exactly once."""
    work()
    effect(f"pay:{number}", context.run)
    send_receipt.enqueue(number)
    work()
    fail_at_first(context, number)


@job(takes_context=True, timeout=SECONDS)
def send_receipt(context: Context, number: int) -> None:
    work()
    effect(f"send_receipt:{number}", context.run)


@job(takes_context=True, timeout=SECONDS)
def book(context: Context, number: int) -> None:
    """Have an effect exactly once by its key, in a job that is not atomic."""
    with transaction.atomic(using=router.jobs_alias):
        with once(f"book:{number}") as first:
            if first:
                effect(f"book:{number}", context.run)
        work()
    work()
    fail_at_first(context, number)


@job(takes_context=True, timeout=SECONDS)
def remind(context: Context, number: int) -> None:
    """Have an effect at least once."""
    work()
    effect(f"remind:{number}", context.run)
    work()
    fail_at_first(context, number)


@job(atomic=True, takes_context=True)
def hold_row(context: Context, key: str, directory: str) -> None:
    """Lock the row "<key>" and leave "<key>:end", both in the run's transaction, and wait for <directory>/go.<run>."""
    Effect.objects.using(router.jobs_alias).filter(key=key).update(run=context.run)
    effect(f"{key}:end", context.run)
    path = Path(directory)
    (path / f"started.{context.run}").touch()
    wait_for_path(path / f"go.{context.run}")
