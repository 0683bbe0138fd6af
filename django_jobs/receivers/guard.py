"""Calling receivers on the connections of a thread that has other things to do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from django.db import DatabaseError, Error, connections, transaction
from django.db.transaction import TransactionManagementError
from django.dispatch import Signal

from django_jobs.engines.idle import in_transaction
from django_jobs.receivers import log

# Whether receivers are being called: what they are refused is no fault of the run in which they are.
_calling: ContextVar[bool] = ContextVar("django_jobs_calling_receivers", default=False)


class _Undone(Exception):
    """What receivers wrote is taken back."""


def calling() -> bool:
    return _calling.get()


class Guard:
    """Leaves this thread's transactions as they were, whatever those do that are called inside of it.

    Where a transaction is open they have a savepoint, which is taken back when a statement of theirs failed. A block, or a
    transaction, that they leave open is rolled back. `who` is how the log names them.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._blocks: dict[str, transaction.Atomic] = {}
        self._raw: set[str] = set()
        # Those in which nothing can be done any more, by the caller's own doing.
        self._broken: set[str] = set()
        self._failed: DatabaseError | None = None

    def __enter__(self) -> Guard:
        for connection in connections.all(initialized_only=True):
            if in_transaction(connection):
                self._open(connection)
        self._token = _calling.set(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _calling.reset(self._token)
        if isinstance(error, DatabaseError):
            self.failed(error)
        ended = [alias for alias, block in self._blocks.items() if not self._close(connections[alias], block, error)]
        for connection in connections.all(initialized_only=True):
            if connection.alias in self._broken or connection.alias in self._blocks:
                continue
            if in_transaction(connection, of_test_case=False):
                log.left_open(self._who, connection.alias)
                _roll_back(connection)
        if ended and error is None:
            raise TransactionManagementError(
                f"{self._who} ended the transaction on the database {ended[0]!r} in which it was called, by a COMMIT, "
                "ROLLBACK or close(), or the connection was lost: nothing of it is sure. Roll it back, and begin anew."
            ) from self._failed

    def send(self, signal: Signal, **said: Any) -> None:
        """Send a signal. What receivers raise Django has logged, with the traceback, where its logger is shown at all."""
        for receiver, answer in signal.send_robust(**said):
            if isinstance(answer, Exception):
                log.raised(self._who, receiver, answer)
            if isinstance(answer, DatabaseError):
                self.failed(answer)

    def failed(self, error: DatabaseError) -> None:
        self._failed = error

    def _open(self, connection: Any) -> None:
        if connection.needs_rollback:
            self._broken.add(connection.alias)
            return
        before = connection.in_atomic_block, connection.commit_on_exit
        if connection.autocommit and not connection.in_atomic_block:  # a raw BEGIN, of which Django knows nothing
            connection.autocommit = False
            self._raw.add(connection.alias)
        block = transaction.atomic(using=connection.alias)
        try:
            block.__enter__()
        except Error:
            connection.in_atomic_block, connection.commit_on_exit = before
            self._restore(connection)
            self._broken.add(connection.alias)
        else:
            self._blocks[connection.alias] = block

    def _close(self, connection: Any, block: transaction.Atomic, error: BaseException | None) -> bool:
        """End the savepoint; return whether the transaction can still be used."""
        try:
            if block not in connection.atomic_blocks:
                return False
            with _logged(self._who, connection.alias):
                if connection.atomic_blocks[-1] is not block:
                    log.left_open(self._who, connection.alias)
                while connection.atomic_blocks[-1] is not block:
                    _undo(connection.atomic_blocks[-1])
            with _logged(self._who, connection.alias):
                if error is None and self._failed is None:
                    block.__exit__(None, None, None)
                else:
                    _undo(block)
        finally:
            self._restore(connection)
        return not connection.needs_rollback

    def _restore(self, connection: Any) -> None:
        if connection.alias in self._raw:
            connection.autocommit = True


def send(signal: Signal, name: str, **said: Any) -> None:
    """Send one signal by itself."""
    with Guard(f"A receiver of {name}") as guard:
        guard.send(signal, **said)


@contextmanager
def _logged(who: str, alias: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:  # one that a receiver has caught, and that has broken the savepoint
        log.statement_failed(who, alias, error)


def _undo(block: transaction.Atomic) -> None:
    block.__exit__(_Undone, _Undone(), None)


def _roll_back(connection: Any) -> None:
    """End what is open on a connection that had no transaction; one that cannot even do that is thrown away."""
    try:
        while connection.atomic_blocks:
            _undo(connection.atomic_blocks[-1])
        if not connection.autocommit:
            connection.rollback()
            connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
        if in_transaction(connection):
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
    except Error:
        connection.atomic_blocks.clear()
        connection.savepoint_ids.clear()
        connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False
        connection.close()
