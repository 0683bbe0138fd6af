"""How runs in a test ended: what is returned of them, and what is raised."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass

from django_jobs.engines import jobs_alias
from django_jobs.engines.values import Claimed, Done, Settlement
from django_jobs.exceptions import JobsError
from django_jobs.models import Job
from django_jobs.outcomes import Outcome
from django_jobs.testing.faults import WorkerLost
from django_jobs.testing.runs import OneRun, said

LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run. `status` is what the job came to by it: "done", "ready" for a retry or a snooze, "failed", "dead", "cancelled";
    or "lost" when its worker or its database was, and "lost lease" when its end was refused.

    `cause` and `error` are as in the job's history, empty for what is done; `exception` is what was raised, if anything.
    """

    job_id: int
    type: str
    run: int
    attempt: int
    status: str
    cause: str = ""
    error: str = ""
    exception: BaseException | None = None

    @property
    def job(self) -> Job:
        """The job as it is now."""
        found: Job = Job.objects.using(jobs_alias()).get(pk=self.job_id)
        return found


def ran_by(
    claimed: Claimed,
    outcome: Done | Settlement | None,
    status: str,
    exception: BaseException | None,
    cause: str = "",
    error: str = "",
) -> Ran:
    if isinstance(outcome, Settlement):
        cause, error = outcome.cause, said(outcome)
    return Ran(
        job_id=claimed.id,
        type=claimed.type,
        run=claimed.token,
        attempt=claimed.attempts + 1,
        status=status,
        cause=cause,
        error=error,
        exception=exception,
    )


def raise_error(ran: Ran, outcome: Done | Settlement, run: OneRun, wanted: bool) -> None:
    if not wanted:
        return
    error = run.error
    if error is not None:
        error.add_note(f"It was raised in run {ran.run} of job {ran.job_id} ({ran.type}), which is {ran.status} now.")
        raise error
    if isinstance(outcome, Settlement) and outcome.cause != "released":
        raise JobsError(f"Run {ran.run} of job {ran.job_id} ({ran.type}) did not end well ({ran.cause}): {ran.error}")


def pass_on(error: BaseException | None) -> None:
    """Raise what is no end of a run, but meant for whoever runs the tests, as by Ctrl-C or pytest's time-out."""
    if isinstance(error, Exception | SystemExit | Outcome | WorkerLost | CancelledError | None):
        return
    raise error
