"""Storing a job: everything is checked before the INSERT, and the INSERT is the caller's own transaction."""

from __future__ import annotations

from typing import Any

from django_jobs import notify, payload, tracing
from django_jobs.engines import engine
from django_jobs.engines.base import Engine
from django_jobs.engines.values import NewJob
from django_jobs.exceptions import JobsError
from django_jobs.models import Job
from django_jobs.options import Enqueue
from django_jobs.queue import told
from django_jobs.queue.new_job import (
    new_job,
    refuse_another_call,
    refuse_event_loop,
    refuse_split_transaction,
    transaction_elsewhere,
)
from django_jobs.registry import JobType

TRIES = 10


def enqueue(job_type: JobType, using: Enqueue, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    refuse_event_loop("enqueue")
    new = new_job(job_type, using, args, kwargs)
    found = engine()
    if not using.detached:
        refuse_split_transaction(transaction_elsewhere(found.alias), found.alias)
    if tracing.is_on():
        with tracing.sending(new.terms.type, new.terms.queue) as sent:
            job = _store(found, new._replace(terms=tracing.carrying(new.terms)))
            sent.stored([job.pk])
            return job
    return _store(found, new)


def _store(found: Engine, new: NewJob) -> Job:
    if new.idempotency_key is None:
        return _told(found, new, _insert(found, new))
    return _insert_once(found, new, new.idempotency_key)


def _told(found: Engine, new: NewJob, job: Job) -> Job:
    if told.enqueues_are_heard():
        told.enqueued(found.alias, [(job.pk, new.terms)])
    return job


def _insert(found: Engine, new: NewJob) -> Job:
    if not new.terms.is_due:
        return found.insert(new)
    word = notify.word_for(found, new.terms.queue)
    job = found.insert(new, word)
    if word is None:
        notify.ready(found, new.terms.queue)
    else:
        notify.passed_on(found, word)
    return job


def _insert_once(found: Engine, new: NewJob, key: str) -> Job:
    # The holder may be deleted, or free its key, between the two statements: then it is tried again.
    for _ in range(TRIES):
        inserted = found.insert_keyed(new, key)
        if inserted is not None:
            if new.terms.is_due:
                notify.ready(found, new.terms.queue)
            return _told(found, new, inserted)
        holder = found.holder(key)
        if holder is not None:
            refuse_another_call(new, holder.type, payload.dump(holder.payload), f"job {holder.pk}", holder.pk)
            holder.reused = True
            return holder
    raise taken_and_freed(key, TRIES)


def taken_and_freed(key: str, times: int) -> JobsError:
    return JobsError(f"The idempotency key {key!r} was taken and freed {times} times in a row; try again.")
