"""The engines of the jobs' databases as the test kit uses them: their own code, on a connection that is in a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from django.db import OperationalError

from django_jobs.conf import conf
from django_jobs.engines import engine
from django_jobs.engines.base import Engine
from django_jobs.engines.causes import LEASE_RAN_OUT
from django_jobs.engines.values import Done, Run, Settlement
from django_jobs.queue import rescue
from django_jobs.testing.faults import Fault
from django_jobs.testing.transactions import in_test_case

# A test may be looked at in a debugger for so long.
PATIENCE = 86_400.0
# What an atomic run sets for its transaction, which here goes on after it.
_SET = ("idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout")


class EngineInTest(Engine):
    """What is other in a test; mixed into the class of the real engine, whose statements it sends."""

    fault: Fault | None = None
    _before: tuple[str, ...] | None = None

    def complete(self, done: Sequence[Done]) -> dict[int, str]:
        self._meet_fault([item.run for item in done])
        return super().complete(done)  # type: ignore[safe-super]

    def settle(self, settlements: Sequence[Settlement], max_uncounted: int) -> dict[int, str]:
        self._meet_fault([item.run for item in settlements])
        return super().settle(settlements, max_uncounted)  # type: ignore[safe-super]

    def _meet_fault(self, runs: list[Run]) -> None:
        if self.is_away:
            raise OperationalError("the test has the database be away")
        fault, self.fault = self.fault, None
        if fault is not None and fault.kind == "lease lost":
            # Also again: what was taken back inside the transaction of an atomic run is rolled back with it.
            take_back(self, runs)
        self.fault = fault

    @property
    def is_away(self) -> bool:
        return self.fault is not None and self.fault.kind == "database away"

    def probe(self, timeout: float) -> bool:
        return not self.is_away

    def for_atomic_run(self) -> AbstractContextManager[None]:
        # In a transaction it is too late to say how it is isolated.
        return nullcontext() if in_test_case(self.connection) else super().for_atomic_run()  # type: ignore[safe-super]

    def mark(self, idle: float, limit: float | None) -> str:
        if self.connection.vendor == "postgresql" and in_test_case(self.connection):
            with self.connection.cursor() as cursor:
                cursor.execute(f"SELECT {', '.join(f'''current_setting('{name}')''' for name in _SET)}")
                self._before = cursor.fetchone()
        return super().mark(PATIENCE, limit)  # type: ignore[safe-super]

    def restore(self) -> None:
        """Undo what an atomic run set, when its savepoint was released."""
        if self._before is not None:
            with self.connection.cursor() as cursor:
                for name, value in zip(_SET, self._before, strict=True):
                    cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
            self._before = None

    def check_deferred(self) -> None:
        if in_test_case(self.connection):
            self.connection.check_constraints()  # there is no COMMIT that would
        else:
            super().check_deferred()  # type: ignore[safe-super]


def engine_in_test(alias: str) -> EngineInTest:
    found: EngineInTest = _tested(type(engine(alias)))(alias)
    return found


@cache
def _tested(kind: type[Engine]) -> Any:
    return type(f"{kind.__name__}InTest", (EngineInTest, kind), {})


@contextmanager
def meeting(found: EngineInTest, fault: Fault | None) -> Iterator[None]:
    found.fault = fault
    try:
        yield
    finally:
        found.fault = None


def take_back(found: Engine, runs: Sequence[Run]) -> None:
    """Take jobs back whose lease ran out, without waiting for that."""
    rescue.lose(
        found,
        [(run, 0.0) for run in runs],
        cause=LEASE_RAN_OUT,
        error="The run was lost: the test had its lease run out.",
        worker="test",
        witnessed=False,
        max_uncounted=conf().max_uncounted,
    )
