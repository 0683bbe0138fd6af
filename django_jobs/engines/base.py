"""The seam between what the queue does and how a database does it; the contract tests run on every engine."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.engines.idle import close_if_dead, close_if_unusable, in_transaction
from django_jobs.engines.values import ClaimOrder, ClaimResult, Done, Expired, Lane, Look, NewJob, Run, Settlement, Word
from django_jobs.models import Job

# What a statement can raise that reached no database, or was not answered. OSError: the driver waits with a selector,
# and a process may have no file descriptor left for one.
DATABASE_ERRORS = (DatabaseError, InterfaceError, OSError)


# Not its result and history, which may be large, when many are read.
HOLDER_FIELDS = ("id", "type", "payload", "idempotency_key", "key_holds")


def milliseconds(seconds: float) -> int:
    """Return a duration as both databases take it: whole, not 0, which would mean none, and within their limits."""
    return min(max(1, round(seconds * 1000)), 2**31 - 1)


class Listening(Protocol):
    """A connection that hears what other processes tell; DATABASE_ERRORS when it broke."""

    def fileno(self) -> int: ...

    def heard(self) -> list[str]:
        """Return what has come, without waiting."""

    def close(self) -> None: ...


class WorkingConnection:
    """Outside a transaction: do not begin on a connection that died while idle, and leave none that is broken.

    Nobody else closes it in a process that serves no requests. Nothing was sent on it yet, so nothing is repeated.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._outside = not in_transaction(self._connection)
        if self._outside:
            close_if_dead(self._connection)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and self._outside and issubclass(kind, DATABASE_ERRORS):
            close_if_unusable(self._connection)


class Engine(ABC):
    """What the queue asks of a database. Every method is one step, and safe to repeat after a lost answer."""

    # Whether a lease that ran out by the database's clock means that its job is to be taken back.
    reaps_by_lease: bool
    name: str
    # From so many seconds on an atomic run is warned about, and why.
    long_atomic: float
    long_atomic_cost: str
    # Whether it can tell other processes that jobs have come.
    notifies = False

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._away_at = -math.inf
        # What the last probe that failed was told.
        self.why_away = ""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    @abstractmethod
    def describe(self) -> str:
        """Return the database's name and version for people."""

    @abstractmethod
    def prepare(self, statement_timeout: float, role: str = "") -> None:
        """Connect this thread for our own statements; `statement_timeout` is in seconds.

        The server's list of sessions shows the role, where it is another than the process's.
        """

    def on_working_connection(self) -> WorkingConnection:
        return WorkingConnection(self.connection)

    @abstractmethod
    def insert(self, new: NewJob, word: Word | None = None) -> Job:
        """Insert a job without a key. A word may be sent along, in a transaction of its own after that of the job."""

    def storing(self) -> AbstractContextManager[None]:
        """Open the transaction, or savepoint, in which many jobs are stored."""
        return transaction.atomic(using=self.alias)

    @abstractmethod
    def insert_many(self, new: Sequence[NewJob]) -> list[int | None]:
        """Insert in this order, except those whose key is taken; return each one's id, None for those.

        Raise EnqueueTimeout when the holder of a key does not end in time. Call it in a transaction.
        """

    def inserting(self, new: Sequence[NewJob]) -> Callable[[], list[int | None]]:
        """Begin to insert jobs without keys as `insert_many` does; return what waits for their ids.

        Until then nothing else can be done with the connection. Call it in a transaction.
        """
        made = self.insert_many(new)
        return lambda: made

    @abstractmethod
    def insert_keyed(self, new: NewJob, key: str) -> Job | None:
        """Insert unless the key is taken, then None. Raise EnqueueTimeout when its holder does not end in time."""

    @abstractmethod
    def waiting_for(self, key: str) -> AbstractContextManager[None]:
        """Bound how long what is done waits for another transaction, by ENQUEUE_TIMEOUT; then raise EnqueueTimeout. Use it
        in a transaction, or savepoint, that ends with that error."""

    @abstractmethod
    def holder(self, key: str) -> Job | None:
        """Return the job that has a key. One that frees it when it is claimed cannot be claimed until the caller's
        transaction ends: its run must see what the caller wrote. Raise EnqueueTimeout when that cannot be had in time."""

    @abstractmethod
    def holders(self, keys: Sequence[str]) -> dict[str, Job]:
        """Return the jobs that have these keys, as `holder` does, with no more of them loaded than HOLDER_FIELDS."""

    @abstractmethod
    def claim(self, order: ClaimOrder) -> ClaimResult:
        """Claim due jobs in the order's lanes; park those of a type that is paused or not in the order.

        Nothing is taken from a paused queue, and nothing of it is parked.
        """

    @abstractmethod
    def claim_parked(self, order: ClaimOrder) -> ClaimResult:
        """Claim due jobs of known types that workers without these types had parked, or that were parked by a pause
        that is over."""

    @abstractmethod
    def claim_suspect(self, order: ClaimOrder) -> ClaimResult:
        """Claim one suspect of a known type: of those lost least often, the one due longest. Nothing is run beside it."""

    @abstractmethod
    def suspects_due(self, queues: tuple[str, ...] | None, types: tuple[str, ...], limit: int) -> list[float]:
        """Return in how many seconds each of the next suspects is due, 0 for now, that `claim_suspect` could take."""

    @abstractmethod
    def look(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Look:
        """Look at every lane from its beginning; those of paused queues are left out."""

    @abstractmethod
    def next_due(self, lanes: Sequence[Lane]) -> float | None:
        """Return the seconds until a job is due in these lanes from their places on, 0 for now, None for never."""

    @abstractmethod
    def complete(self, done: Sequence[Done]) -> dict[int, str]:
        """Write successes; return the status that each job whose fence held now has: done, or cancelled by a person."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
        """Write other ends; return the status that each job whose fence held now has."""

    @abstractmethod
    def ended_by(self, runs: Sequence[Run], waiting: bool = True) -> dict[int, str]:
        """Return the status of those jobs in whose row the end of their run is, unless it was that its lease ran out.

        That a row merely is not running is no such end: somebody may have changed it by hand.
        `waiting`: for an end whose COMMIT is under way, instead of missing it.
        """

    @abstractmethod
    def extend(self, runs: Sequence[Run], lease: float) -> dict[int, bool]:
        """Extend leases, also expired ones; return whether a person has cancelled the job, for each id whose fence held
        or whose row somebody else is writing."""

    @abstractmethod
    def renew(self, run: Run, lease: float) -> bool:
        """Extend the lease of a run that is about to start; return whether it was, and no person has cancelled the job.

        Unlike `extend` it says no of a row that somebody else is writing: it may be another run's a moment later.
        """

    @abstractmethod
    def store_progress(self, reports: Sequence[tuple[Run, str]]) -> None: ...

    @abstractmethod
    def expired(self, limit: int) -> list[Expired]:
        """Lock and return running jobs whose lease ran out. Call it in a transaction."""

    def held_by(self, incarnation: str) -> list[Run]:
        """Return the running jobs that a worker incarnation holds."""
        rows = Job.objects.using(self.alias).running().filter(locked_by__startswith=f"{incarnation}:")
        return [Run(*row) for row in rows.values_list("id", "token", "locked_by")]

    @abstractmethod
    def cancel_expired(self, limit: int) -> int:
        """Cancel waiting jobs whose time to be started is over, also parked ones; return how many."""

    @abstractmethod
    def expired_exist(self) -> bool: ...

    def turn(self, waits: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Wait until an atomic run may begin, for as long as `waits()`; say whether it may."""
        return nullcontext(True)

    @abstractmethod
    def for_atomic_run(self) -> AbstractContextManager[None]:
        """Connect, and have the next transaction be one for an atomic run, whatever the project's defaults say."""

    def begin(self, block: transaction.Atomic) -> bool:
        """Begin the transaction of an atomic run; tell whether it could be, in which another one may be in the way."""
        block.__enter__()
        return True

    @abstractmethod
    def mark(self, idle: float, limit: float | None) -> str:
        """Set the transaction up for one run, and return by what it is known.

        `idle`: seconds after which the server ends it, when it is asked nothing; `limit`: those of each statement, None
        for the project's own.
        """

    @abstractmethod
    def was_ended(self, mark: str) -> bool:
        """Say whether the function that raised has ended the marked transaction before, as far as can be told."""

    @abstractmethod
    def broken_by(self) -> str | None:
        """Say what ended the open transaction, or made it fail, as far as this side knows; None if it is usable."""

    @abstractmethod
    def check_deferred(self) -> None:
        """Check the constraints that were deferred to the COMMIT, if they can be checked before it."""

    @abstractmethod
    def is_marked(self, mark: str, limit: float) -> bool:
        """Say whether the open transaction is the marked one; its statements take `limit` seconds at most from here."""

    @abstractmethod
    def acting(self) -> AbstractContextManager[None]:
        """Return a transaction for what a person does to jobs, inside the caller's if there is one: it may write from
        its start, and raises StateConflict when it waited for others as long as an enqueue would."""

    def notify(self, payload: str) -> None:
        """Tell whoever listens, outside the caller's transaction. Raises what the database, or the driver, does."""
        raise NotImplementedError

    def channel(self) -> str:
        """Return the name of the channel on which `notify` tells."""
        raise NotImplementedError

    def listen(self, channel: str, dsn: str | None, options: dict[str, Any], timeout: float) -> Listening:
        """Connect and listen, by a connection string or, with None, as to the jobs; answer within `timeout` seconds.

        `options` are parameters of the connection for which the string, or the project, has none.
        """
        raise NotImplementedError

    def probe(self, timeout: float) -> bool:
        """Tell, on a new connection and within `timeout` seconds, whether the database answers and can be written.

        One that others keep busy for as long is there.
        """
        if self._answers(timeout):
            return True
        self._away_at = time.monotonic()
        return False

    def _answers(self, timeout: float) -> bool:
        said = self.why_not_writable(timeout)
        self.why_away = said or self.why_away
        return said is None

    @abstractmethod
    def why_not_writable(self, timeout: float) -> str | None:
        """Return why the database cannot be reached or written, in its own words if it has any; None if it can.

        As a probe, which asks it when something went wrong, but for people.
        """

    def was_away_since(self, moment: float) -> bool:
        """Tell whether a probe of this process failed since a moment of its monotonic clock."""
        return self._away_at >= moment
