"""What is said across the seam between the queue and a database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django_jobs.engines.causes import DATABASE_AWAY, OUTCOME_LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a new job has besides its arguments and its key: many that are stored together mostly have the same."""

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
        return {name: getattr(self, name) for name in self.__slots__}


class NewJob(NamedTuple):
    """A call that was checked. `payload` is JSON text of one line."""

    terms: Terms
    payload: str
    idempotency_key: str | None

    def parameters(self) -> dict[str, Any]:
        return {**self.terms.parameters(), "payload": self.payload, "idempotency_key": self.idempotency_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder:
    """What a worker asks for. `lease` is seconds; `queues` None means all."""

    locked_by: str
    lease: float
    limit: int
    queues: tuple[str, ...] | None
    types: tuple[str, ...]


class Run(NamedTuple):
    """One claim of one job: with these three every write of a worker is fenced."""

    id: int
    token: int
    locked_by: str


class Claimed(NamedTuple):
    """A claimed job as the worker needs it. `payload` is JSON text, `timeout` seconds.

    `idempotency_key` is None unless it stands for this job for ever. `expires_in`: the seconds that were left to start it
    when it was claimed; an `expired` one is to be cancelled, not run.
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

    @property
    def run(self) -> Run:
        return Run(self.id, self.token, self.locked_by)

    @property
    def expired(self) -> bool:
        return self.expires_in is not None and self.expires_in <= 0


class ClaimResult(NamedTuple):
    """What a claim brought; of the rows that it `parked`, so many were of types `unknown` here."""

    jobs: list[Claimed]
    parked: int
    unknown: int


class Look(NamedTuple):
    """What a look without locks found: seconds until the next job is due (0 = now), and parked jobs to be had."""

    due_in: float | None
    parked: bool


# Of the losses in a row that are allowed, so many at the end are those of a run alone, whatever caused them.
LAST_ALONE = 3
# "end" resets the losses in a row, as an attempt does; "nothing" leaves all as it was.
Counts = Literal["attempt", "loss", "end", "nothing"]


class Settlement(NamedTuple):
    """How a run ended, unless it simply returned.

    `delay`: seconds from now to `run_at`, doubled with each loss in a row (three times at most); None keeps `run_at`.
    `witnessed`: a supervisor saw the process die in this run. `entry`: its line in the history as JSON.
    `stored`: what the job has come to, when that was committed together with what the run wrote.
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

    @property
    def suspicious(self) -> bool:
        """Whether the job itself may have caused the loss: the second such one in a row makes it a suspect."""
        return self.counts == "loss" and self.cause not in (DATABASE_AWAY, OUTCOME_LOST)


def released(run: Run) -> Settlement:
    """Return the settlement that gives a claim back as if it had not been made; the token stays used."""
    return Settlement(run=run, status="ready", counts="nothing", cause="released")


class Done(NamedTuple):
    run: Run
    result: str | None
    stored: str | None = None


class Expired(NamedTuple):
    run: Run
    type: str
    seconds: float
