"""Every log line of the package. Successes are DEBUG; what a person should know is INFO and above."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction

if TYPE_CHECKING:
    from datetime import datetime

    from django_jobs.engines.values import Claimed, Run

logger = logging.getLogger("django_jobs")
FAILURE_SECONDS = 5.0
WAKE_UP_SECONDS = 60.0
_failures_said: dict[str, float] = {}
_long_atomic: set[str] = set()


def say(level: int, text: str, *values: object, **options: Any) -> None:
    try:
        logger.log(level, text, *values, **options)
    except Exception:
        pass  # a project's filter that raises must not end our threads


def when_committed(alias: str, line: Callable[..., None], *values: object) -> None:
    """Say a line of what is true when the transaction has committed, and only then."""
    transaction.on_commit(partial(line, *values), using=alias, robust=True)


def _job(claimed: Claimed) -> dict[str, object]:
    said = {"job_id": claimed.id, "job_type": claimed.type, "queue": claimed.queue}
    return {**said, "run": claimed.token, "attempt": claimed.attempts + 1}


def started(engine: str, alias: str, queues: str, processes: int, threads: int, types: int, lease: float) -> None:
    say(logging.INFO,
        "Workers started on %s (%s): queues %s, %d processes x %d threads, %d types, lease %g s",
        engine, alias, queues, processes, threads, types, lease,
    )  # fmt: skip


def queue_without_type(queue: str) -> None:
    say(logging.WARNING, "No job type uses the queue %r; jobs may still be enqueued there by using(queue=...)", queue)


def worker_ready(pid: int) -> None:
    say(logging.INFO, "Worker process %d is ready", pid)


def runs_alone(pid: int, claimed: Claimed) -> None:
    say(logging.INFO, "Process %d runs job %d %s alone: it may have killed its process", pid, claimed.id, claimed.type,
        extra=_job(claimed),
    )  # fmt: skip


def worker_died(pid: int, how: str, jobs: int) -> None:
    say(logging.ERROR, "Worker process %d died: %s; %d jobs in its hands go back", pid, how, jobs)


def worker_hangs(pid: int, seconds: float) -> None:
    say(logging.ERROR, "Worker process %d has not answered for %.0f s and runs no job; it is replaced", pid, seconds)


def process_used_up(pid: int, claimed: int, most: int) -> None:
    say(logging.INFO, "Worker process %d has claimed %d jobs (MAX_JOBS_PER_PROCESS is %d); it is replaced",
        pid, claimed, most,
    )  # fmt: skip


def process_too_large(pid: int, memory: int, most: int) -> None:
    say(logging.WARNING,
        "Worker process %d has %s MiB of resident memory (MAX_PROCESS_MEMORY is %s MiB); it is replaced",
        pid, f"{memory / 2**20:,.1f}", f"{most / 2**20:,.1f}",
    )  # fmt: skip


def process_drains(pid: int, jobs: Sequence[int], drain: float) -> None:
    say(logging.WARNING,
        "Worker process %d is replaced, because what it runs does not end at its deadline (%s); "
        "other runs in it may finish for %g s",
        pid, _jobs(jobs), drain,
    )  # fmt: skip


def process_ended(pid: int, jobs: Sequence[int], is_held: bool) -> None:
    say(logging.ERROR,
        "Worker process %d %s; it is ended with what did not end at its deadline (%s)",
        pid, "does not answer" if is_held else "is to be replaced", _jobs(jobs),
    )  # fmt: skip


def drain_over(pid: int, runs: int) -> None:
    say(logging.WARNING, "DRAIN is over in worker process %d: %d runs are cut and go back, uncounted", pid, runs)


def _jobs(ids: Sequence[int]) -> str:
    said = ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")
    return f"job {said}" if len(ids) == 1 else f"jobs {said}"


def template_died() -> None:
    say(logging.ERROR, "The template process died; workers are stopped and started anew")


def summary(counts: dict[str, int], running: int) -> None:
    said = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items() if number)
    say(logging.INFO, "Last second: %s; %d running", said or "nothing ended", running)


def stopping(signal_name: str, grace: float) -> None:
    say(logging.INFO, "%s: no more claims; runs may finish for %g s", signal_name, grace)


def grace_over(runs: int) -> None:
    say(logging.WARNING, "The grace is over: %d runs are cut and go back, uncounted unless they are late", runs)


def stopped(code: int) -> None:
    say(logging.INFO, "Workers stopped (exit %d)", code)


def database_away(process: str, error: BaseException) -> None:
    say(
        logging.ERROR,
        "%s: the jobs' database cannot be reached, waiting: %s",
        process,
        str(error).strip().replace("\n", " "),
    )


def database_back(process: str, seconds: float) -> None:
    say(logging.INFO, "%s: the jobs' database is back after %.1f s", process, seconds)


def job_done(claimed: Claimed, seconds: float) -> None:
    say(logging.DEBUG, "Job %d %s done in %.3f s", claimed.id, claimed.type, seconds, extra=_job(claimed))


def job_done_unheard(claimed: Claimed, seconds: float) -> None:
    say(logging.INFO,
        "Job %d %s is done, after %.1f s: its COMMIT was made, though no answer came",
        claimed.id, claimed.type, seconds, extra=_job(claimed),
    )  # fmt: skip


def hook_failed(claimed: Claimed, error: BaseException) -> None:
    say(logging.ERROR,
        "Job %d %s is committed, but a hook of its transaction (on_commit) failed; it does not run again: %s",
        claimed.id, claimed.type, error, exc_info=error, extra=_job(claimed),
    )  # fmt: skip


def atomic_again(claimed: Claimed, error: BaseException) -> None:
    say(logging.INFO,
        "Job %d %s: another transaction was in the way, so it is rolled back and called again: %s",
        claimed.id, claimed.type, str(error).strip().replace("\n", " "), extra=_job(claimed),
    )  # fmt: skip


def atomic_is_long(claimed: Claimed, seconds: float, cost: str) -> None:
    if claimed.type not in _long_atomic:
        _long_atomic.add(claimed.type)
        say(logging.WARNING,
            "Job %d %s is atomic and took %.1f s: %s. Keep atomic jobs short; this is said once for a type",
            claimed.id, claimed.type, seconds, cost, extra=_job(claimed),
        )  # fmt: skip


def job_settled(claimed: Claimed, status: str, cause: str, error: str, delay: float | None,
    exception: BaseException | None = None,
) -> None:  # fmt: skip
    if status == "ready":
        when = "" if delay is None else f", again in {delay:.1f} s at the earliest"
        say(logging.INFO, "Job %d %s %s%s: %s", claimed.id, claimed.type, cause, when, error, extra=_job(claimed))
    elif status == "cancelled":
        say(logging.INFO, "Job %d %s cancelled: %s", claimed.id, claimed.type, error, extra=_job(claimed))
    else:
        # With what was raised, which is not said with retries: what reports errors hears of a job's last one.
        why = "" if cause == status else f" ({cause})"
        say(logging.ERROR, "Job %d %s is %s%s: %s", claimed.id, claimed.type, status, why, error,
            exc_info=exception, extra=_job(claimed),
        )  # fmt: skip


def job_unstorable(run: Run, error: BaseException) -> None:
    say(logging.ERROR, "The outcome of job %d cannot be stored; it fails without its texts: %s", run.id, error)


def lost_lease(run: Run) -> None:
    say(logging.WARNING,
        "Lost lease: run %d of job %d ended, but the job is no longer this run's; its outcome is refused",
        run.token, run.id,
    )  # fmt: skip


def lease_taken(run: Run) -> None:
    say(logging.WARNING, "Lost lease: run %d of job %d is told to stop; the job is no longer its", run.token, run.id)


def run_cancelled(run: Run) -> None:
    say(logging.INFO, "Run %d of job %d is told to stop: the job was cancelled", run.token, run.id)


def job_lost(job_id: int, status: str, cause: str, error: str) -> None:
    level = logging.ERROR if status == "dead" else logging.WARNING
    say(level, "Job %d lost its run (%s): %s; it is %s now", job_id, cause, error.rstrip("."), status)


def job_act(job_id: int, what: str, said: str) -> None:
    say(logging.INFO, "Job %d %s: %s", job_id, what, said)


def jobs_expired(number: int) -> None:
    say(logging.INFO, "%d jobs were cancelled: the time by which they had to start passed before a worker took them",
        number,
    )  # fmt: skip


def job_late(job_id: int, status: str, error: str) -> None:
    level = logging.ERROR if status == "dead" else logging.INFO
    say(level, "Job %d is %s (deadline): %s", job_id, status, error)


def paused(kind: str, name: str, until: datetime | None, by: str, why: str) -> None:
    said = "".join(
        [f" by {by}" if by else "", f" until {until.isoformat()}" if until else "", f": {why}" if why else ""]
    )
    say(logging.INFO, "The %s %s is paused%s", kind, name, said)


def type_paused(name: str, ids: Sequence[int], minutes: int) -> None:
    say(logging.ERROR,
        "The type %s is paused until a person resumes it: %d jobs of it were convicted within %d minutes (%s)",
        name, len(ids), minutes, _jobs(ids),
    )  # fmt: skip


def resumed(kind: str, name: str) -> None:
    say(logging.INFO, "The %s %s is resumed", kind, name)


def purged(number: int, first: int, last: int, by: str) -> None:
    say(logging.INFO, "%d jobs were deleted%s, from id %d to %d", number, f" by {by}" if by else "", first, last)


def heart_stopped() -> None:
    say(logging.ERROR, "The supervisor's thread for the database had ended; it is started again")


def process_failed(pid: int, error: BaseException) -> None:
    say(logging.ERROR, "Worker process %d cannot go on and ends: %s", pid, error, exc_info=error)


def types_parked(number: int) -> None:
    say(logging.WARNING, "%d jobs of types unknown here are parked for a worker that knows them", number)


def loop_failed(name: str) -> None:
    if is_to_be_said(name):
        say(logging.ERROR, "%s failed; it goes on", name, exc_info=True)


def is_to_be_said(failure: str, seconds: float = FAILURE_SECONDS) -> bool:
    # What fails again and again, as with a table that somebody locked, is not said each time.
    now = time.monotonic()
    if now - _failures_said.get(failure, -seconds) < seconds:
        return False
    _failures_said[failure] = now
    return True


def unsupervised(pid: int, seconds: float) -> None:
    say(
        logging.WARNING,
        "Worker process %d claims nothing: its supervisor has not extended leases for %.0f s",
        pid,
        seconds,
    )


def connection_broke(process: str, error: BaseException) -> None:
    if is_to_be_said(f"{process}: connection"):
        said = str(error).strip().replace("\n", " ")
        say(logging.WARNING, "%s: the connection broke and is made anew: %s", process, said)


def wake_up_failed(error: BaseException) -> None:
    if is_to_be_said("Waking idle workers", WAKE_UP_SECONDS):
        why = " ".join(str(error).split())
        say(logging.WARNING, "Idle workers could not be woken, and find new jobs by themselves: %s", why)
