"""Connections that died while nobody used them, as all do when the server is restarted."""

from __future__ import annotations

import select
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


def close_if_dead(connection: BaseDatabaseWrapper) -> None:
    """Close an idle connection of this thread that no longer works, so that the next statement makes a new one."""
    if may_be_dead(connection):
        close_if_unusable(connection)


def may_be_dead(connection: BaseDatabaseWrapper) -> bool:
    """Tell, in microseconds, whether the server has said something unasked: a farewell, or something harmless."""
    raw: Any = connection.connection
    if raw is None or connection.vendor != "postgresql":
        return False
    if raw.closed:
        return True
    return _has_input(raw.fileno())


def _has_input(descriptor: int) -> bool:
    if not hasattr(select, "poll"):  # as on Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def close_if_unusable(connection: BaseDatabaseWrapper) -> None:
    if not in_transaction(connection) and not connection.is_usable():
        connection.close()


def in_transaction(connection: BaseDatabaseWrapper, of_test_case: bool = True) -> bool:
    """Tell whether a transaction is open, also by a raw BEGIN, which leaves Django's flags as they were.

    That of a TestCase, in which the code under test is not aware of it, counts or does not, as with Django's `durable`.
    """
    blocks: Any = connection.atomic_blocks
    if not of_test_case and blocks and blocks[-1]._from_testcase:
        return False
    raw: Any = connection.connection
    if raw is None:  # one that was never opened says of itself that autocommit is off
        return connection.in_atomic_block
    if connection.in_atomic_block or not connection.autocommit:
        return True
    if connection.vendor == "postgresql":
        return int(raw.pgconn.transaction_status) in (1, 2, 3)  # active, in a transaction, in a failed one
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    return False
