"""What is said across the seam between the queue and a database."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

from django_jobs import registry
from django_jobs.engines.causes import DATABASE_AWAY, OUTCOME_LOST, RELEASED


def as_text(value: str | float | datetime | None) -> bytes | None:
    """Return what a server reads as this value, whatever type it wants there."""
    return None if value is None else str(value).encode()


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a new job has besides its arguments and its key: many jobs mostly have the same.

    So what engines make of it, again and again, is kept with it: no slots.
    """

    type: str
    queue: str
    priority: int
    key_holds: str
    run_at: datetime | None
    delay: float
    # As a time, or as seconds from the enqueue.
    expires_at: datetime | None
    expires_in: float | None
    max_attempts: int
    timeout: float | None
    meta: str
    # Of a job that a schedule made: its name, and the planned instant.
    schedule: str | None = None
    slot: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def is_due(self) -> bool:
        """Whether it is due at once. What has a `run_at` is taken to be due later."""
        return self.run_at is None and self.delay <= 0

    @cached_property
    def columns(self) -> dict[str, Any]:
        return {name: value for name, value in self.parameters().items() if name not in ("delay", "expires_in")}

    @cached_property
    def texts(self) -> dict[str, bytes | None]:
        return {name: as_text(value) for name, value in self.parameters().items()}


class NewJob(NamedTuple):
    """A call that was checked. `payload` is JSON text of one line."""

    terms: Terms
    payload: str
    idempotency_key: str | None

    def parameters(self) -> dict[str, Any]:
        return {**self.terms.parameters(), "payload": self.payload, "idempotency_key": self.idempotency_key}

    @property
    def texts(self) -> dict[str, bytes | None]:
        return {**self.terms.texts, "payload": self.payload.encode(), "idempotency_key": as_text(self.idempotency_key)}


class Word:
    """What idle workers are to be told of a queue when something is stored; `sent` if that went along with it."""

    __slots__ = ("error", "queue", "sent")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.sent = False
        # Why it could not be sent; what was stored is.
        self.error: Exception | None = None


class Lane(NamedTuple):
    """A priority of a queue, and the place in it from which on its waiting jobs are read.

    `due` is seconds since 1970 by the database's clock, of the job with that `id`.
    """

    queue: str
    priority: int
    due: float
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder:
    """What a worker asks for. `lease` is seconds; `queues` None means all.

    `lanes` are served in the order given, each from its place on, but for `oldest` of the `limit` jobs: those are due
    longest of all lanes. Without any given, it is looked which there are, and the higher priorities come first.
    Nothing is claimed of a database that is neither of this `deployment` nor nobody's; with None it is not asked.
    """

    locked_by: str
    lease: float
    limit: int
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    lanes: tuple[Lane, ...] | None = None
    oldest: int = 0
    deployment: str | None = None


class Run(NamedTuple):
    """One claim of one job: with these three every write of a worker is fenced."""

    id: int
    token: int
    locked_by: str


class Claimed(NamedTuple):
    """A claimed job as the worker needs it. `payload` is JSON text, `timeout` seconds.

    `idempotency_key` is None unless it stands for this job for ever. `expires_in`: the seconds that were left to start it
    when it was claimed; an `expired` one is to be cancelled, not run. `due` is seconds since 1970, and `waited` the
    seconds since then, by the database's clock; `losses` were those in a row. `trace` is what it carries, as JSON.
    """

    id: int
    token: int
    locked_by: str
    type: str
    payload: str
    attempts: int
    max_attempts: int
    idempotency_key: str | None
    timeout: float | None
    slot: datetime | None
    expires_in: float | None = None
    queue: str = ""
    priority: int = 0
    due: float = 0.0
    waited: float = 0.0
    losses: int = 0
    trace: str | None = None

    @property
    def run(self) -> Run:
        return tuple.__new__(Run, self[:3])  # a third of the time that _make takes

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was enqueued with, by the names of its function's parameters; raise TypeError if it has others by now."""
        job_type, content = registry.find(self.type), json.loads(self.payload)
        if job_type is None:
            return {}
        first = [None] if job_type.takes_context else []
        found = job_type.signature.bind(*first, *content["args"], **content["kwargs"]).arguments
        return dict(list(found.items())[len(first) :])

    @property
    def expired(self) -> bool:
        return self.expires_in is not None and self.expires_in <= 0


def in_order(lanes: Sequence[Lane] | None) -> Callable[[Claimed], tuple[float, ...]]:
    """Return the key by which the jobs of a claim are started: lane by lane, and in each those due first."""
    if lanes is None or len(lanes) == 1:
        return lambda claimed: (-claimed.priority, claimed.due, claimed.id)
    places = {(lane.queue, lane.priority): place for place, lane in enumerate(lanes)}
    return lambda claimed: (places.get((claimed.queue, claimed.priority), len(places)), claimed.due, claimed.id)


class ClaimResult(NamedTuple):
    """What a claim brought; of the rows that it `parked`, so many were of types `unknown` here."""

    jobs: list[Claimed]
    parked: int
    unknown: int


class Look(NamedTuple):
    """What a look without locks found: seconds until the next job is due (0 = now), and parked jobs to be had.

    `lanes` are all in which a job waits, each at its first one; `now` is the time of the look, as the lanes have it.
    """

    due_in: float | None
    parked: bool
    lanes: tuple[Lane, ...] = ()
    now: float = 0.0


# Of the losses in a row that are allowed, so many at the end are those of a run alone, whatever caused them.
LAST_ALONE = 3
# "end" resets the losses in a row, as an attempt does; "nothing" leaves all as it was.
Counts = Literal["attempt", "loss", "end", "nothing"]


class Settlement(NamedTuple):
    """How a run ended, unless it simply returned.

    `delay`: seconds from now to `run_at`, doubled with each loss in a row (three times at most); None keeps `run_at`.
    `witnessed`: a supervisor saw the process die in this run. `entry`: its line in the history as JSON.
    `stored`: what the job has come to, when that was committed together with what the run wrote.
    `exception`: what was raised, if it is the end of the job; for the log, and kept until that is written.
    """

    run: Run
    status: str
    counts: Counts
    cause: str
    delay: float | None = None
    witnessed: bool = False
    error: str | None = None
    entry: str | None = None
    stored: str | None = None
    exception: BaseException | None = None

    @property
    def suspicious(self) -> bool:
        """Whether the job itself may have caused the loss: the second such one in a row makes it a suspect."""
        return self.counts == "loss" and self.cause not in (DATABASE_AWAY, OUTCOME_LOST)


def released(run: Run) -> Settlement:
    """Return the settlement that gives a claim back as if it had not been made; the token stays used."""
    return Settlement(run=run, status="ready", counts="nothing", cause=RELEASED)


class Done(NamedTuple):
    run: Run
    result: str | None
    stored: str | None = None


class Expired(NamedTuple):
    run: Run
    type: str
    seconds: float
