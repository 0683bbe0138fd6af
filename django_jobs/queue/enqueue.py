"""Storing a job: everything is checked before the INSERT, and the INSERT is the caller's own transaction."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from typing import Any

from django.db import connections

from django_jobs import payload
from django_jobs.conf import conf
from django_jobs.engines import engine
from django_jobs.engines.base import Engine, NewJob
from django_jobs.exceptions import IdempotencyConflict, InvalidJob, InvalidJobType, JobsError
from django_jobs.models import Job
from django_jobs.options import Enqueue, _Unset
from django_jobs.registry import JobType

TRIES = 10


def enqueue(job_type: JobType, using: Enqueue, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    _refuse_event_loop()
    new = _new_job(job_type, using, args, kwargs)
    found = engine()
    if not using.detached:
        _refuse_split_transaction(found.alias)
    if new.idempotency_key is None:
        return found.insert(new)
    return _insert_once(found, new, new.idempotency_key)


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise InvalidJobType("enqueue() was called inside a running event loop; use `await ... .aenqueue(...)`.")


def _refuse_split_transaction(alias: str) -> None:
    """The job would be stored at once, whatever becomes of the transaction that the caller has open elsewhere."""
    if connections[alias].in_atomic_block:
        return
    for connection in connections.all(initialized_only=True):
        if connection.alias != alias and connection.in_atomic_block:
            raise InvalidJob(
                f"A transaction is open on the database {connection.alias!r} and none on the jobs' database {alias!r}: the "
                f"job would stay if that one rolled back. Open transaction.atomic(using={alias!r}) as well, or say that "
                "this is meant by using(detached=True)."
            )


def _new_job(job_type: JobType, using: Enqueue, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    settings = conf()
    expires = using.expires
    return NewJob(
        type=job_type.name,
        queue=using.queue or job_type.queue,
        priority=job_type.priority if using.priority is None else using.priority,
        payload=_payload(job_type, args, kwargs, settings.max_payload_bytes),
        idempotency_key=using.idempotency_key,
        key_holds=using.unique or Job.KeyHolds.WINDOW.value,
        run_at=using.run_at,
        delay=using.delay or 0.0,
        expires_at=expires if isinstance(expires, datetime) else None,
        expires_in=expires if isinstance(expires, float) else None,
        max_attempts=using.max_attempts or job_type.max_attempts or settings.max_attempts,
        timeout=_timeout(job_type, using, settings.default_timeout),
        meta=payload.dump(_meta(job_type, using)),
    )


def _meta(job_type: JobType, using: Enqueue) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if job_type.tags:
        found["tags"] = list(job_type.tags)
    if using.idempotency_key is not None and using.unique not in (None, Job.KeyHolds.WINDOW):
        found["key"] = using.idempotency_key  # kept when the key itself is freed
    return found


def _timeout(job_type: JobType, using: Enqueue, default: float) -> float | None:
    if not isinstance(using.timeout, _Unset):
        return using.timeout
    return default if job_type.default_timeout else job_type.timeout


def _payload(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
    _check_arguments(job_type, args, kwargs)
    text = payload.dump({"args": list(args), "kwargs": kwargs})
    size = len(text.encode())
    if size > limit:
        raise InvalidJob(
            f"The arguments of {job_type.name} are {size:,} bytes of JSON; MAX_PAYLOAD_BYTES allows {limit:,}. "
            "Store the data elsewhere and pass where."
        )
    return text


def _check_arguments(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parameters = job_type.signature.parameters
    for name, value in _bound(job_type, args, kwargs):
        kind = parameters[name].kind
        if kind is kind.VAR_POSITIONAL:
            for index, item in enumerate(value):
                payload.check(item, f"{job_type.name}: argument *{name}[{index}]")
        elif kind is kind.VAR_KEYWORD:
            for key, item in value.items():
                payload.check(key, f"{job_type.name}: the name of an argument")
                payload.check(item, f"{job_type.name}: argument {key!r}")
        else:
            payload.check(value, f"{job_type.name}: argument {name!r}")


def _bound(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    # A stand-in for the context: a **kwargs must not take its name, which would fail at the call only.
    context = [None] if job_type.takes_context else []
    try:
        bound = job_type.signature.bind(*context, *args, **kwargs)
    except TypeError as error:
        raise InvalidJobType(
            f"The arguments do not fit {job_type.name}{job_type.signature}: {error}. Nothing was enqueued."
        ) from None
    return list(bound.arguments.items())[len(context) :]


def _insert_once(found: Engine, new: NewJob, key: str) -> Job:
    # The holder may be deleted, or free its key, between the two statements: then it is tried again.
    for _ in range(TRIES):
        inserted = found.insert_keyed(new, key)
        if inserted is not None:
            return inserted
        holder = found.holder(key)
        if holder is not None:
            return _same_call(holder, new, key)
    raise JobsError(f"The idempotency key {key!r} was taken and freed {TRIES} times in a row; try again.")


def _same_call(holder: Job, new: NewJob, key: str) -> Job:
    held = payload.dump(holder.payload)
    if holder.type == new.type and payload.same(held, new.payload):
        return holder
    raise IdempotencyConflict(key, holder.pk, f"{holder.type} {_call(held)}", f"{new.type} {_call(new.payload)}")


def _call(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
