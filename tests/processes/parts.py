"""The parts of a worker process, made for tests inside the test's own process."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.db import connections

from django_jobs import deployment, registry
from django_jobs.conf import Conf
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, ClaimOrder, Done, Settlement
from django_jobs.models import Job
from django_jobs.queue.history import entry
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.ended import Ended
from django_jobs.workers.fallen import Child, Rescuer
from django_jobs.workers.outage import Outage
from django_jobs.workers.plan import Plan
from django_jobs.workers.pulse import Pulse
from django_jobs.workers.seats import SeatMap
from django_jobs.workers.teller import Teller
from django_jobs.workers.worker import Worker
from django_jobs.workers.writer import Writer
from tests.app.jobs import nothing

SETTINGS = Conf(lease=30.0, heartbeat=10.0, poll_interval=0.2, threads=2)


def plan(alias: str, **settings: Any) -> Plan:
    return Plan(
        alias=alias,
        settings=replace(SETTINGS, **settings),
        queues=None,
        types=tuple(registry.names()),
        supervisor_pid=os.getpid(),
        burst=False,
    )


def claim(engine: Engine, limit: int, locked_by: str = "inc:1") -> list[Claimed]:
    order = ClaimOrder(locked_by=locked_by, lease=30.0, limit=limit, queues=None, types=tuple(registry.names()))
    return engine.claim(order).jobs


def claim_suspect(engine: Engine, locked_by: str = "inc:1") -> list[Claimed]:
    order = ClaimOrder(locked_by=locked_by, lease=30.0, limit=10, queues=None, types=tuple(registry.names()))
    return engine.claim_suspect(order).jobs


def claimed(engine: Engine, count: int, locked_by: str = "inc:1") -> list[Claimed]:
    """Enqueue and claim so many jobs."""
    for number in range(count):
        nothing.enqueue(number)
    return claim(engine, count, locked_by)


class Tables:
    """A region of seats with one child in it, and what watches it."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.engine = engine
        self.plan = plan(engine.alias, **settings)
        self.map = SeatMap(1)
        self.region = self.map.regions[0]
        self.child = Child(index=0, incarnation=uuid.uuid4().hex, pid=os.getpid())
        self.living = [self.child]
        self.pulse = Pulse(engine, self.plan, self.map, lambda: list(self.living))
        self.rescuer = Rescuer(engine, self.plan.settings.lease, self.plan.settings.max_uncounted)
        self.outage = Outage("supervisor", self.plan.settings.lease)

    def claimed(self, count: int, claim_number: int = 1) -> list[Claimed]:
        return claimed(self.engine, count, f"{self.child.incarnation}:{claim_number}")

    def seat(self, jobs: list[Claimed], first: int = 0) -> None:
        for number, job in enumerate(jobs, first):
            self.region.take([(number, job.id, job.token)], int(job.locked_by.split(":")[1]))

    def worker(self, *, begun: bool = True) -> Worker:
        if begun:  # else its claims bring nothing
            deployment.begin(self.engine, self.plan.settings.deployment)
        return Worker(self.engine, self.plan, self.child.incarnation, self.map, 0, Doorbell(), os.getppid())


class Desk:
    """A writer that is running, and the seats of what it is given."""

    def __init__(self, engine: Engine, timeout: float = 5.0) -> None:
        self.region = SeatMap(1).regions[0]
        self.freed: list[int] = []
        self.outage = Outage("test", 30.0)
        self.writer = Writer(
            engine,
            self.region,
            self.outage,
            self.freed.extend,
            lambda: False,
            10,
            3 * timeout,
            lambda seconds: False,
            "a1",
        )
        self._seat = 0

    def put(self, *outcomes: tuple[Claimed, Done | Settlement]) -> None:
        for job, outcome in outcomes:
            self.region.take([(self._seat, job.id, job.token)], 1)
            self.writer.put(Ended(self._seat, job, outcome, 0.1))
            self._seat += 1


@contextmanager
def desk(engine: Engine, timeout: float = 5.0, given: Callable[[Desk], None] | None = None) -> Iterator[Desk]:
    """Start a writer; `given` puts what its first batch is to be."""
    found = Desk(engine, timeout)
    if given is not None:
        given(found)
    found.writer.start()
    try:
        yield found
    finally:
        found.writer.finish()
        connections[engine.alias].close()


def hold(teller: Teller) -> threading.Event:
    """Have it be with a receiver that comes back when the event is set."""
    begun, free = threading.Event(), threading.Event()

    def receive() -> None:
        begun.set()
        free.wait()

    teller.put(receive)
    begun.wait()
    return free


def raised(job: Claimed, error: str = "it failed", **values: Any) -> Settlement:
    settlement = Settlement(run=job.run, status="ready", counts="attempt", cause="raised", delay=60.0, error=error)
    return settlement._replace(entry=entry(job.token, "raised", error, "host:1", 0.1))._replace(**values)


def states(engine: Engine, jobs: list[Claimed]) -> list[tuple[str, int, int, int]]:
    """Return status, attempts, losses and token of each."""
    rows = Job.objects.using(engine.alias).in_bulk([job.id for job in jobs])
    return [(row.status, row.attempts, row.losses, row.token) for row in (rows[job.id] for job in jobs)]
