"""The transaction that a TestCase has open: what takes place in it, and how to get out of it what is left open."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction

from django_jobs.engines.idle import in_transaction
from django_jobs.exceptions import JobsError
from django_jobs.workers.connections import opened

# As libpq has it: a transaction in which a statement failed, so that PostgreSQL takes nothing more.
IN_ERROR = 3


def in_test_case(connection: Any) -> bool:
    """Tell whether a connection is in the transaction of a TestCase, whatever is open inside that."""
    return bool(connection.atomic_blocks) and connection.atomic_blocks[0]._from_testcase


def innermost(connection: Any) -> transaction.Atomic | None:
    """Return the innermost block that a TestCase has opened."""
    return next((block for block in reversed(connection.atomic_blocks) if block._from_testcase), None)


def refuse_open_transaction(alias: str, name: str) -> None:
    connection = connections[alias]
    connection.ensure_connection()
    if in_transaction(connection, of_test_case=False):
        raise JobsError(
            f"{name} was called inside a transaction on the jobs' database {alias!r}, of which no worker sees anything "
            "yet: call it when `transaction.atomic()` has ended. That of a TestCase itself does not count."
        )


def unwind(connection: Any, outer: transaction.Atomic) -> bool:
    """Roll back the blocks that were left open inside another one; tell whether there were any."""
    found = False
    while connection.atomic_blocks and connection.atomic_blocks[-1] is not outer:
        if outer not in connection.atomic_blocks:
            raise JobsError("A job ended the transaction of the test: it closed a connection, or sent a COMMIT.")
        error = JobsError("left open")
        connection.atomic_blocks[-1].__exit__(JobsError, error, None)
        found = True
    return found


class RunBlocks:
    """The savepoints, one in each transaction of a TestCase, in which one run takes place.

    They pass for blocks of the TestCase: to the function no transaction is open, as in a worker. What it wrote stays when it
    raises, as there; unless a statement failed, after which PostgreSQL has nothing left of the transaction.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, transaction.Atomic] = {}
        self._hooks: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def open(self) -> None:
        for connection in opened():
            if in_test_case(connection):
                block: Any = transaction.atomic(using=connection.alias)
                block._from_testcase = True
                self._hooks[connection.alias] = len(connection.run_on_commit)
                block.__enter__()
                self._blocks[connection.alias] = block

    def unwind(self) -> list[str]:
        """Roll back what the function left open; return the aliases."""
        return [alias for alias, block in self._blocks.items() if unwind(connections[alias], block)]

    def close(self) -> None:
        for alias, block in self._blocks.items():
            connection: Any = connections[alias]
            unwind(connection, block)
            if _has_failed(connection):
                connection.set_rollback(True)
            block.__exit__(None, None, None)

    def run_hooks(self) -> None:
        """Call what was to be called on commit: a TestCase never commits."""
        for alias, start in self._hooks.items():
            connection: Any = connections[alias]
            while len(connection.run_on_commit) > start:
                _, function, robust = connection.run_on_commit.pop(start)
                try:
                    function()
                except Exception:
                    if not robust:
                        raise


def _has_failed(connection: Any) -> bool:
    if connection.vendor != "postgresql":
        return False
    return int(connection.connection.pgconn.transaction_status) == IN_ERROR
