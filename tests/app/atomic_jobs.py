"""Atomic jobs of the tests: handlers that leave an effect, and then do what may break its being had once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Permission
from django.db import DatabaseError, connections, transaction

from django_jobs import Backoff, Cancel, Context, Fail, Retry, Snooze, job
from django_jobs.models import Job
from tests import router
from tests.app.jobs import leave_effect
from tests.app.models import Effect
from tests.app.process_jobs import effect, wait_for_path


def execute(sql: str, alias: str | None = None) -> None:
    with connections[alias or router.jobs_alias].cursor() as cursor:
        cursor.execute(sql)


def other() -> str:
    return "lite" if router.jobs_alias == "default" else "default"


def _raise(error: BaseException) -> None:
    raise error


def _write_elsewhere() -> None:
    Effect.objects.using(other()).create(key="elsewhere")


def _swallow(act: Callable[[], object]) -> None:
    with suppress(Exception):
        act()


def _driver(*methods: str) -> None:
    for method in methods:
        raw: Any = connections[router.jobs_alias].connection
        getattr(raw, method)() if method in ("commit", "rollback") else raw.execute(method)


def _error_in_a_savepoint() -> None:
    with suppress(DatabaseError), transaction.atomic(using=router.jobs_alias):
        execute("SELECT no_such_column FROM app_effect")


def _error_without_savepoint() -> None:
    with suppress(DatabaseError), transaction.atomic(using=router.jobs_alias, savepoint=False):
        execute("SELECT no_such_column FROM app_effect")


def _commit_and(error: BaseException, *commands: str) -> None:
    if commands:
        _driver(*commands)
    else:
        connection: Any = connections[router.jobs_alias]
        connection._commit()
    raise error


def _delete_own_row() -> None:
    Job.objects.using(router.jobs_alias).running().delete()


def _durable() -> None:
    with transaction.atomic(using=router.jobs_alias, durable=True):
        pass


def _leave_open(alias: str) -> None:
    transaction.atomic(using=alias).__enter__()


def _break_connection() -> None:
    with suppress(DatabaseError):
        execute("SELECT pg_terminate_backend(pg_backend_pid())")


def _hook(act: Callable[[], object]) -> None:
    transaction.on_commit(act, using=router.jobs_alias)


def _write_everything() -> None:
    effect("hook")
    _write_elsewhere()
    execute("BEGIN")
    execute("COMMIT")


def _wrong_reference() -> None:
    Permission.objects.using(router.jobs_alias).create(content_type_id=999_999, codename="x", name="x")


def _again_and_again() -> None:
    with connections[router.jobs_alias].cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '40001'; END $$")


ACTS: dict[str, Callable[[], object]] = {
    "return": lambda: "result",
    "return Fail": lambda: Fail("no"),
    "return Retry": lambda: Retry(60),
    "return Snooze": lambda: Snooze(60),
    "return Cancel": lambda: Cancel("enough"),
    "raise": lambda: _raise(ValueError("oh")),
    "raise Fail": lambda: _raise(Fail("no")),
    "raise Retry": lambda: _raise(Retry(60)),
    "raise Snooze": lambda: _raise(Snooze(60)),
    "raise Cancel": lambda: _raise(Cancel("enough")),
    "no JSON": lambda: {1, 2},
    "follow up": lambda: leave_effect.enqueue("follow up") and None,
    "commit": lambda: execute("COMMIT"),
    "rollback": lambda: execute("  rollback"),
    "begin": lambda: execute("/* a comment */ BEGIN"),
    "swallowed commit": lambda: _swallow(partial(execute, "COMMIT")),
    "driver commit": lambda: _driver("commit"),
    "driver rollback": lambda: _driver("rollback"),
    "driver commit and begin": lambda: _driver("commit", "BEGIN"),
    "driver commit and raise": lambda: _commit_and(ValueError("oh"), "commit"),
    "driver commit and raise Retry": lambda: _commit_and(Retry(0), "commit", "BEGIN"),
    "inner commit and raise": lambda: _commit_and(ValueError("oh")),
    "two statements": lambda: execute("SELECT 1; COMMIT"),
    "search path": lambda: execute("SET LOCAL search_path = pg_catalog"),
    "role": lambda: execute("SET LOCAL ROLE pg_read_all_data"),
    "read only": lambda: execute("SET TRANSACTION READ ONLY"),
    "reset": lambda: execute("RESET ALL"),
    "delete own row": _delete_own_row,
    "write elsewhere": _write_elsewhere,
    "swallowed write elsewhere": lambda: _swallow(_write_elsewhere),
    "read elsewhere": lambda: Effect.objects.using(other()).count(),
    "swallowed error": lambda: _swallow(partial(execute, "SELECT no_such_column FROM app_effect")),
    "error in a savepoint": _error_in_a_savepoint,
    "error without savepoint": _error_without_savepoint,
    "set rollback": lambda: transaction.set_rollback(True, using=router.jobs_alias),
    "durable": _durable,
    "django commit": lambda: transaction.commit(using=router.jobs_alias),
    "django autocommit": lambda: transaction.set_autocommit(True, using=router.jobs_alias),
    "close": lambda: connections[router.jobs_alias].close(),
    "leave open": lambda: _leave_open(router.jobs_alias),
    "leave open elsewhere": lambda: _leave_open(other()),
    "break connection": _break_connection,
    "hook raises": lambda: _hook(lambda: _raise(ValueError("the hook"))),
    "hook writes": lambda: _hook(_write_everything),
    "hook leaves open": lambda: _hook(lambda: execute("BEGIN")),
    "wrong reference": _wrong_reference,
    "again and again": _again_and_again,
}


@job(atomic=True, takes_context=True, max_attempts=8, backoff=Backoff(base=60))
def write_and(context: Context, key: str, how: str) -> Any:
    """Leave an effect, and then do, return or raise what is said."""
    effect(key, context.run)
    return ACTS[how]()


@job(atomic=True, other_databases=True, takes_context=True)
def write_anywhere(context: Context, key: str, how: str) -> Any:
    effect(key, context.run)
    return ACTS[how]()


@job(atomic=True)
def isolation() -> str:
    with connections[router.jobs_alias].cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        return str(cursor.fetchone()[0])


@job(atomic=True, takes_context=True)
def lock_both(context: Context, first: str, second: str, directory: str) -> int:
    """Lock two rows, in this order; between them wait until both jobs of the test have locked one, the first time."""
    rows = Effect.objects.using(router.jobs_alias).select_for_update()
    rows.get(key=first)
    (Path(directory) / first).touch()
    wait_for_path(Path(directory) / second)
    return rows.filter(key=second).update(run=context.run)


@job(atomic=True, takes_context=True)
def sleep_in_the_database(context: Context, key: str, seconds: float) -> None:
    effect(key, context.run)
    execute(f"SELECT pg_sleep({seconds})")


@job(atomic=True, takes_context=True)
def idle(context: Context, key: str, path: str) -> int:
    """Leave an effect, wait for the file without asking the database, and ask it then."""
    effect(key, context.run)
    Path(f"{path}.{context.run}").touch()
    wait_for_path(Path(path))
    return Effect.objects.using(router.jobs_alias).count()


@job(atomic=True, takes_context=True)
def read_and_write(context: Context, key: str, path: str) -> None:
    """Read, wait for the file, and write then."""
    Effect.objects.using(router.jobs_alias).count()
    Path(f"{path}.{context.run}").touch()
    wait_for_path(Path(path))
    effect(key, context.run)


@job(atomic=True, takes_context=True)
def lock_and_wait(context: Context, key: str, directory: str) -> None:
    """Lock a row that the test has made, and wait as `write_and_wait` does."""
    Effect.objects.using(router.jobs_alias).filter(key=key).update(run=context.run)
    (Path(directory) / f"{key}.{context.run}.started").touch()
    wait_for_path(Path(directory) / f"{key}.{context.run}")


@job(atomic=True, takes_context=True)
def hook_and_wait(context: Context, key: str, directory: str) -> None:
    """Have a hook touch "<key>.<run>.started" and wait for "<key>.<run>"."""

    def hook() -> None:
        (Path(directory) / f"{key}.{context.run}.started").touch()
        wait_for_path(Path(directory) / f"{key}.{context.run}")

    effect(key, context.run)
    _hook(hook)


@job(atomic=True, takes_context=True)
def die_in(context: Context, key: str, when: str) -> int:
    """Leave an effect; in the first run die by SIGKILL, at once or in the hook after the COMMIT."""
    effect(key, context.run)
    leave_effect.enqueue(f"{key}:after")
    if context.run == 1 and when == "handler":
        os.kill(os.getpid(), signal.SIGKILL)
    if when == "hook":
        _hook(lambda: os.kill(os.getpid(), signal.SIGKILL))
    return context.run


@job(atomic=True, takes_context=True)
def write_and_wait(context: Context, key: str, directory: str) -> int:
    """Leave an effect, touch "<key>.<run>.started", wait for "<key>.<run>", report progress, and return the run."""
    effect(key, context.run)
    context.progress(1, 2, "started")
    (Path(directory) / f"{key}.{context.run}.started").touch()
    wait_for_path(Path(directory) / f"{key}.{context.run}")
    context.progress(2, 2, "ended")
    return context.run


@job(atomic=True, takes_context=True)
def write_until_asked(context: Context, key: str, path: str) -> str:
    effect(key, context.run)
    Path(path).touch()
    while not context.should_stop:
        time.sleep(0.01)
    return "asked"
