"""Jobs of the tests that go on after their deadline, each in its way. All leave "<key>:start"."""

from __future__ import annotations

import asyncio
import os
import re
import time

from django.db import connections

from django_jobs import Context, Retry, job
from tests import router
from tests.app.async_jobs import effect as async_effect
from tests.app.models import Effect

LONG = 600
# Counts without end.
ENDLESS_SQL = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"
_kept: list[bytearray] = []


def effect(key: str, run: int = 0) -> None:
    Effect.objects.using(router.jobs_alias).create(key=key, run=run, pid=os.getpid())


@job(takes_context=True)
def sleep_in_python(context: Context, key: str) -> None:
    effect(f"{key}:start", context.run)
    try:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass
    finally:
        effect(f"{key}:cleaned", context.run)


@job(takes_context=True)
def catch_everything(context: Context, key: str) -> None:
    effect(f"{key}:start", context.run)
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass


@job(takes_context=True)
def sleep_in_one_call(context: Context, key: str) -> None:
    effect(f"{key}:start", context.run)
    time.sleep(LONG)


@job(takes_context=True)
def ask_for_long(context: Context, key: str) -> None:
    effect(f"{key}:start", context.run)
    connection = connections[router.jobs_alias]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_sleep({LONG})" if connection.vendor == "postgresql" else ENDLESS_SQL)


@job(takes_context=True)
async def sleep_asynchronously(context: Context, key: str) -> None:
    await async_effect(f"{key}:start", context.run)
    try:
        await asyncio.sleep(LONG)
    finally:
        await async_effect(f"{key}:cleaned", context.run)


@job(takes_context=True)
async def catch_cancellations(context: Context, key: str) -> None:
    await async_effect(f"{key}:start", context.run)
    while True:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            pass


@job(takes_context=True)
async def block_the_loop(context: Context, key: str) -> None:
    await async_effect(f"{key}:start", context.run)
    time.sleep(LONG)


@job(takes_context=True)
def match_for_long(context: Context, key: str, length: int) -> None:
    """Hold the interpreter by one match of a pattern that takes for ever."""
    effect(f"{key}:start", context.run)
    re.fullmatch(r"(a+)+b", "a" * length)


@job(takes_context=True)
def look_and_retry(context: Context, key: str) -> Retry:
    """Look at should_stop, as one should."""
    effect(f"{key}:start", context.run)
    while not context.should_stop:
        time.sleep(0.01)
    return Retry(3600)


@job(takes_context=True)
def grow(context: Context, key: str, mebibytes: int) -> None:
    """Keep memory for the rest of the process's life."""
    _kept.append(bytearray(os.urandom(1024) * (mebibytes * 1024)))
    effect(key, context.run)
