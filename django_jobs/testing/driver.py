"""Running what is due in a test, one job after the other: claimed, run and ended by the code of the workers."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache

from django.db import transaction

from django_jobs import checked, registry
from django_jobs.conf import conf
from django_jobs.engines import jobs_alias
from django_jobs.engines.base import DATABASE_ERRORS
from django_jobs.engines.causes import DATABASE_AWAY, DIED
from django_jobs.engines.values import Claimed, ClaimOrder, ClaimResult
from django_jobs.exceptions import InvalidJob, InvalidJobType, JobsError, shown
from django_jobs.models import Job
from django_jobs.outcomes import Outcome
from django_jobs.queue import rescue
from django_jobs.queue.new_job import refuse_event_loop
from django_jobs.schedules import tick
from django_jobs.schedules.sync import sync
from django_jobs.testing import faults
from django_jobs.testing.clock import advance
from django_jobs.testing.engines import engine_in_test, meeting, take_back
from django_jobs.testing.faults import Fault, WorkerLost
from django_jobs.testing.given import Type, type_of
from django_jobs.testing.guard import refuse_outside_of_tests
from django_jobs.testing.ran import LOST, Ran, pass_on, raise_error, ran_by
from django_jobs.testing.runs import LABEL, OneRun
from django_jobs.testing.transactions import refuse_open_transaction
from django_jobs.workers import ended
from django_jobs.workers.ended import Ended
from django_jobs.workers.executor import too_late
from django_jobs.workers.seats import Region, SeatMap

# After so many runs something goes round in a circle.
MOST_RUNS = 1000
# The clocks of databases have milliseconds.
TICK = timedelta(milliseconds=1)
_running = threading.local()


def run_jobs(
    *,
    most: int | None = None,
    types: Sequence[Type] | None = None,
    queues: Sequence[str] | None = None,
    ahead: timedelta = timedelta(0),
    schedules: bool = False,
    raise_errors: bool = True,
) -> list[Ran]:
    """Run the jobs that are due, and those that become due by it, until none is; return the runs in their order.

    It takes one job after the other, the higher priorities first, on the test's own connection, also inside the transaction of
    a TestCase. `most`: runs after which it stops; `types`, `queues`: only these; a type is a job
    function, a task, or a name. `ahead`: run what becomes due within so
    long, as retries, delays and snoozes, by moving the clock from one to the next, and to its end. `schedules`: have
    the jobs of schedules made as well, those of the code from the first such call on.

    What a job raises is stored as by a worker and then raised here, unless `raise_errors=False`: then it is a retry, or
    the job's end. Outcomes such as Retry and Fail are not raised. Raises JobsError inside `transaction.atomic()`, in a
    job, and after 1,000 runs that had no end.
    """
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidJob(f"run_jobs(most={shown(most)}): give a whole number from 1 on, or None for all.")
    for name, given in (("types", types), ("queues", queues)):
        if isinstance(given, str) or not isinstance(given, Sequence | None):
            raise InvalidJobType(f"run_jobs({name}={shown(given)}): give a list, as {name}=[...].")
    served = None if queues is None else tuple(map(checked.queue, queues))
    if not isinstance(ahead, timedelta) or ahead < timedelta(0):
        raise InvalidJobType(f"run_jobs(ahead={shown(ahead)}): give a timedelta of at least 0.")
    refuse_event_loop("run_jobs", "await sync_to_async(run_jobs)(...)")
    if is_running():
        raise JobsError("run_jobs() was called in a job that it runs; what that enqueues is run after it anyway.")
    alias = jobs_alias()
    refuse_outside_of_tests(alias, "run_jobs()")
    refuse_open_transaction(alias, "run_jobs()")
    names = None if types is None else tuple(type_of(each, "run_jobs(types=...)").name for each in types)
    driver = Driver(types=names, queues=served, schedules=schedules)
    with driver.working():
        return driver.drain(MOST_RUNS if most is None else most, ahead, raise_errors, bounded=most is not None)


def is_running() -> bool:
    """Tell whether this thread is running jobs: what is enqueued meanwhile is run after it."""
    return getattr(_running, "is_on", False)


@cache
def _region() -> Region:
    return SeatMap(1).regions[0]  # where ends are counted


class Driver:
    """What takes the place of a worker process, and of a scheduler."""

    def __init__(
        self,
        *,
        types: tuple[str, ...] | None = None,
        queues: tuple[str, ...] | None = None,
        schedules: bool = False,
        before_claim: Callable[[], object] = lambda: None,
    ) -> None:
        self._engine = engine_in_test(jobs_alias())
        self._settings = conf()
        self._known = tuple(registry.names())
        self._types = self._known if types is None else types
        self._queues = queues
        self._schedules = schedules
        self._before_claim = before_claim
        self._incarnation = uuid.uuid4().hex
        self._claims = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """What is claimed for is known here; that a job was left, as its type was not asked for, is not to be seen after."""
        jobs = Job.objects.using(self._engine.alias).filter(status="ready", parked="type")
        left = [name for name in self._known if name not in self._types]
        before = list(jobs.filter(type__in=left).values_list("pk", flat=True)) if left else []
        _running.is_on = True
        try:
            yield
        finally:
            _running.is_on = False
            if left:
                jobs.filter(type__in=left).exclude(pk__in=before).update(parked=None)

    def drain(self, most: int, ahead: timedelta, raise_errors: bool, bounded: bool) -> list[Ran]:
        found: list[Ran] = []
        if self._schedules:
            sync(self._engine.alias)
        while True:
            self._tick()
            claimed = self._claim() if len(found) < most else None
            if claimed is not None:
                found.append(self.run(claimed, raise_errors))
            elif len(found) >= most:
                break
            elif (pause := self._until_due()) is not None and pause <= ahead:
                advance(pause)
                ahead -= pause
            else:
                advance(ahead) if ahead else None
                return found
        if not bounded:
            raise JobsError(
                f"{most:,} jobs were run, the last of them of {found[-1].type}, and it may go on: does a job enqueue itself "
                "again, or come back at once? Give run_jobs(most=...) to stop there, or to run more."
            )
        return found

    def _tick(self) -> None:
        if self._schedules:
            while tick.tick(self._engine, self._known, LABEL).taken:
                pass

    def _until_due(self) -> timedelta | None:
        """Return how long until there is something to do, at least a tick of the clock; None for never."""
        found = self._engine.look(self._queues, self._types).due_in
        times = [] if found is None else [found]
        times += self._engine.suspects_due(self._queues, self._types, 1)
        if self._schedules and (due := tick.due_in(self._engine, self._known)) is not None:
            times.append(due)
        return timedelta(seconds=min(times)) + TICK if times else None

    def _claim(self) -> Claimed | None:
        self._before_claim()
        for claim in (self._engine.claim, self._engine.claim_parked, self._engine.claim_suspect):
            while (found := self._send(claim)).jobs or found.parked:
                if found.jobs:
                    return found.jobs[0]
        return None

    def _send(self, claim: Callable[[ClaimOrder], ClaimResult]) -> ClaimResult:
        self._claims += 1
        return claim(
            ClaimOrder(
                locked_by=f"{self._incarnation}:{self._claims}",
                lease=self._settings.lease,
                limit=1,
                queues=self._queues,
                types=self._types,
            )
        )

    def run_next(self, job_id: int, fault: Fault | None = None) -> Ran | None:
        """Run the one job that is due, if it is, and have it meet a fault."""
        claimed = self._claim()
        if claimed is None:
            return None
        assert claimed.id == job_id, f"job {claimed.id} was claimed, and job {job_id} was to be"
        return self.run(claimed, raise_errors=False, fault=fault)

    def run(self, claimed: Claimed, raise_errors: bool, fault: Fault | None = None) -> Ran:
        job_type = registry.find(claimed.type)
        is_atomic = job_type is not None and job_type.atomic
        fault = fault or faults.take(claimed.type)
        run = OneRun(self._engine, self._settings, claimed, is_atomic, fault)
        started = time.monotonic()
        with meeting(self._engine, fault):
            outcome = too_late(claimed) if claimed.expired else run.make()
            pass_on(run.error)
            if isinstance(run.error, WorkerLost):
                return self._lost(claimed, run)
            status = self._store(run, Ended(0, claimed, outcome, time.monotonic() - started))
        if status is None:
            return self._away(claimed, run)
        ran = ran_by(claimed, outcome, status, run.error)
        if not isinstance(run.told, Outcome):
            raise_error(ran, outcome, run, raise_errors and not claimed.expired and fault is None)
        return ran

    def _store(self, run: OneRun, item: Ended) -> str | None:
        """Write how a run ended, as the writer does; return what the job came to, None if the database is away."""
        if item.outcome.stored is not None:
            statuses = {item.claimed.id: item.outcome.stored}
        else:
            try:
                statuses = self._written(run, item)
            except DATABASE_ERRORS:
                if not self._engine.is_away:
                    item = ended.without_texts(item)
                    statuses = self._written(run, item)
                else:
                    return None
        ended.account(_region(), [item], statuses)
        return statuses[item.claimed.id]

    def _written(self, run: OneRun, item: Ended) -> dict[int, str]:
        with transaction.atomic(using=self._engine.alias):
            if run.progress is not None:
                self._engine.store_progress([(item.claimed.run, run.progress)])
            return ended.store(self._engine, [item], self._settings.max_uncounted)

    def _lost(self, claimed: Claimed, run: OneRun) -> Ran:
        rescue.lose(
            self._engine,
            [(claimed.run, 0.0)],
            cause=DIED,
            error="The worker process died: the test had it be lost.",
            worker=LABEL,
            witnessed=True,
            max_uncounted=self._settings.max_uncounted,
        )
        return ran_by(claimed, None, LOST, run.error, DIED, "its worker was lost")

    def _away(self, claimed: Claimed, run: OneRun) -> Ran:
        take_back(self._engine, [claimed.run])
        return ran_by(claimed, None, LOST, run.error, DATABASE_AWAY, "its end could not be stored")
