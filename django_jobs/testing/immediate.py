"""Jobs that are run where they are enqueued, as soon as a worker could have them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import override_settings

from django_jobs.engines import jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.engines.idle import in_transaction
from django_jobs.testing.driver import MOST_RUNS, Driver, is_running
from django_jobs.testing.guard import refuse_outside_of_tests, refuse_without_tests
from django_jobs.testing.transactions import in_test_case, innermost


class _Immediate(override_settings):
    def enable(self) -> None:
        refuse_without_tests("immediate()")
        # The settings of now: a decorator is made when its module is imported.
        self.options = {"DJANGO_JOBS": _with_immediate()}
        super().enable()


def _with_immediate() -> dict[str, Any]:
    return {**getattr(settings, "DJANGO_JOBS", {}), "IMMEDIATE": True}


def immediate() -> override_settings:
    """Have jobs run as soon as the transaction that enqueues them has ended: a decorator and a context manager.

    It sets `IMMEDIATE` in DJANGO_JOBS. Outside of a transaction, for which that of a TestCase does not count, that is at
    once. What they raise becomes a retry, as with a worker; what is due later waits for `run_jobs`.
    """
    return _Immediate(DJANGO_JOBS=_with_immediate())


def told(found: Engine) -> None:
    """Run what is due, as a worker that is told of it: after the caller's transaction."""
    connection: Any = found.connection
    if is_running():
        return  # it goes on until nothing is due
    if not in_transaction(connection, of_test_case=False):
        _run_due()
    elif in_test_case(connection):
        _after_block(connection)
    elif not any(function is _run_due for _, function, _ in connection.run_on_commit):
        transaction.on_commit(_run_due, using=found.alias)


def _run_due() -> None:
    refuse_outside_of_tests(jobs_alias(), "IMMEDIATE")
    driver = Driver()
    with driver.working():
        driver.drain(MOST_RUNS, timedelta(0), raise_errors=False, bounded=False)


def _after_block(connection: Any) -> None:
    """Run what is due when the block ends that is the outermost but for those of the TestCase, which never commits."""
    if "savepoint_commit" not in vars(connection):
        release, outer = connection.savepoint_commit, innermost(connection)
        connection.savepoint_commit = partial(_released, connection, release, outer)


def _released(connection: Any, release: Any, outer: Any, sid: str) -> None:
    release(sid)
    if connection.atomic_blocks[-1:] == [outer] or outer not in connection.atomic_blocks:
        del connection.savepoint_commit
        if outer in connection.atomic_blocks:
            _run_due()
