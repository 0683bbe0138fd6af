"""A job, wherever it is kept, as the result of a task."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from typing import Any

from django.utils import timezone

from django_jobs.engines import jobs_alias
from django_jobs.engines.causes import CALLED_OFF, HISTORY_LIMIT
from django_jobs.exceptions import JobDoesNotExist
from django_jobs.models import Job, Worker, find
from django_jobs.models.record import JobRecord
from django_jobs.outcomes import Cancel
from django_jobs.tasks import discovery, types
from django_jobs.tasks.api import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from django_jobs.tasks.errors import class_path, errors
from django_jobs.tasks.task import copied
from django_jobs.tasks.values import META

STATUSES = {
    Job.Status.READY: TaskResultStatus.READY,
    Job.Status.RUNNING: TaskResultStatus.RUNNING,
    Job.Status.DONE: TaskResultStatus.SUCCESSFUL,
    Job.Status.FAILED: TaskResultStatus.FAILED,
    Job.Status.DEAD: TaskResultStatus.FAILED,
    Job.Status.CANCELLED: TaskResultStatus.FAILED,
}


def get(alias: str, result_id: object) -> TaskResult:  # type: ignore[type-arg]
    """Return the result with this id of the backend `alias`; raise TaskResultDoesNotExist."""
    job_id = _job_id(result_id)
    job = None if job_id is None else find(jobs_alias(), job_id)
    if job is None or _backend(job, alias) != alias:
        raise TaskResultDoesNotExist(f"There is no result {str(result_id)[:80]!r}.")
    task = discovery.find(job.type)
    if task is None:
        raise TaskResultDoesNotExist(
            f"Job {job.pk} is of the type {job.type}, which is no task that this process knows. One that is neither in a "
            "module `tasks` nor imported by the URLconf is known when its module is: OPTIONS['modules'] names such modules."
        )
    return of(job, _restored(job, task, alias), alias)


def running(job_id: int) -> TaskResult:  # type: ignore[type-arg]
    """Return the result, as it is now, of a task that is being run."""
    # For each run: the ORM takes three times as long to write this statement as the database to answer it.
    job = next(iter(Job.objects.using(jobs_alias()).raw("SELECT * FROM django_jobs_job WHERE id = %s", [job_id])), None)
    task = None if job is None else types.find(job.type)
    if job is None or task is None:
        raise JobDoesNotExist(f"There is no job {job_id} of a task: it was deleted while it ran.")
    alias = _backend(job, task.backend)
    return of(job, _restored(job, task, alias), alias, f"{socket.gethostname()}:{os.getpid()}")


def of(job: JobRecord, task: Any, alias: str, holder: str | None = None) -> TaskResult:  # type: ignore[type-arg]
    """Return the result that a job is; `holder` is the worker that runs it, if that is known."""
    status = STATUSES[Job.Status(job.status)]
    found: TaskResult = TaskResult(  # type: ignore[type-arg]
        task=task,
        id=str(job.pk),
        status=status,
        enqueued_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.last_started_at,
        args=job.args,
        kwargs=job.kwargs,
        backend=alias,
        errors=_errors(job),
        worker_ids=_worker_ids(job, holder),
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(found, "_return_value", job.result)
    return found


def _job_id(result_id: object) -> int | None:
    """Return the number that an id is, as we write it; what no column holds finds nothing."""
    text = str(result_id) if isinstance(result_id, str | int) and not isinstance(result_id, bool) else ""
    plain = text.isascii() and text.isdecimal() and len(text) <= 19 and not text.startswith("0")
    return int(text) if plain else None


def _meta(job: JobRecord) -> dict[str, Any]:
    found = job.meta.get(META) if isinstance(job.meta, dict) else None
    return found if isinstance(found, dict) else {}


def _backend(job: JobRecord, default: str) -> str:
    """Return the backend that enqueued it; a job of a schedule or of a person has none."""
    return str(_meta(job).get("backend", default))


def _restored(job: JobRecord, task: Any, alias: str) -> Any:
    """Return a task as it was enqueued."""
    said = _meta(job).get("run_after")
    run_after = None if said is None else datetime.fromisoformat(said)
    if run_after is not None and job.created_at.tzinfo is None:
        run_after = timezone.make_naive(run_after)
    return copied(task, priority=job.priority, queue_name=job.queue, run_after=run_after, backend=alias)


def _errors(job: JobRecord) -> list[TaskError]:
    found = [
        TaskError(exception_class_path=said.path, traceback=said.text) for said in errors(job.history, job.last_error)
    ]
    cancelled = class_path(Cancel)
    if job.status == Job.Status.CANCELLED and not any(item.exception_class_path == cancelled for item in found):
        found.append(TaskError(exception_class_path=cancelled, traceback=job.cancel_reason or CALLED_OFF))
    return found


def _worker_ids(job: JobRecord, holder: str | None) -> list[str]:
    """Return a name for each run: of one that succeeded only its number is kept, and of many in a row not all.

    A claim that went back unstarted was no run.
    """
    runs = [entry for entry in job.history if entry.get("run") and entry.get("worker")]
    found = [str(entry["worker"]) for entry in runs]
    if len(job.history) >= HISTORY_LIMIT and len(runs) > 1:
        found[1:1] = [_unnamed(run) for run in range(runs[0]["run"] + 1, runs[1]["run"])]
    if job.status == Job.Status.RUNNING:
        found.append(holder or _holder(job))
    elif job.status == Job.Status.DONE:
        found.append(_unnamed(job.token))
    return found


def _unnamed(run: int) -> str:
    return f"run:{run}"


def _holder(job: Any) -> str:
    incarnation = str(job.locked_by).partition(":")[0]
    worker = Worker.objects.using(job._state.db).filter(pk=incarnation).first()
    return incarnation if worker is None else str(worker)
