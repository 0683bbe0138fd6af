"""From a call to what is stored of it. Everything that may be wrong with it is found here, before anything is written."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from typing import Any

from django.db import connections

from django_jobs import payload
from django_jobs.conf import Conf, conf
from django_jobs.engines.values import NewJob, Terms
from django_jobs.exceptions import IdempotencyConflict, InvalidJob, InvalidJobType
from django_jobs.models import Job
from django_jobs.options import Enqueue, _Unset
from django_jobs.queue.arguments import payload_of
from django_jobs.registry import JobType

SHOWN_CHARACTERS = 200
# Of the last enqueue of each type: for the same options, with the same settings, it is the same.
_last_terms: dict[str, tuple[JobType, Enqueue, Conf, Terms]] = {}


def refuse_event_loop(name: str, instead: str = "") -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        instead = instead or f"await ... .a{name}(...)"
        raise InvalidJobType(f"{name}() was called inside a running event loop; use `{instead}`.")


def transaction_elsewhere(alias: str) -> str | None:
    """Return another database on which a transaction is open while none is on the jobs' database, `alias`."""
    if len(connections.settings) == 1 or connections[alias].in_atomic_block:
        return None
    others = connections.all(initialized_only=True)
    return next((other.alias for other in others if other.alias != alias and other.in_atomic_block), None)


def refuse_split_transaction(elsewhere: str | None, alias: str) -> None:
    """The job would be stored at once, whatever becomes of the transaction that the caller has open elsewhere."""
    if elsewhere is not None:
        raise InvalidJob(
            f"A transaction is open on the database {elsewhere!r} and none on the jobs' database {alias!r}: the "
            f"job would stay if that one rolled back. Open transaction.atomic(using={alias!r}) as well, or say that "
            "this is meant by using(detached=True)."
        )


def new_job(job_type: JobType, using: Enqueue, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    settings = conf()
    known = _last_terms.get(job_type.name)
    if known is not None and known[0] is job_type and known[1] is using and known[2] is settings:
        terms = known[3]
    else:
        terms = terms_of(job_type, using)
        _last_terms[job_type.name] = job_type, using, settings, terms
    return NewJob(terms, payload_of(job_type, args, kwargs, settings.max_payload_bytes), using.idempotency_key)


def terms_of(job_type: JobType, using: Enqueue) -> Terms:
    settings = conf()
    using.check()
    expires = using.expires
    return Terms(
        type=job_type.name,
        queue=using.queue or job_type.queue,
        priority=job_type.priority if using.priority is None else using.priority,
        key_holds=using.unique or Job.KeyHolds.WINDOW.value,
        run_at=using.run_at,
        delay=using.delay or 0.0,
        expires_at=expires if isinstance(expires, datetime) else None,
        expires_in=expires if isinstance(expires, float) else None,
        max_attempts=using.max_attempts or job_type.max_attempts or settings.max_attempts,
        timeout=_timeout(job_type, using, settings.default_timeout),
        meta=_meta(job_type, using),
    )


def refuse_another_call(new: NewJob, job_type: str, held: str, owner: str, job_id: int | None, place: str = "") -> None:
    """Raise IdempotencyConflict unless what `owner`, which has the key, was called with is what `new` is called with."""
    if job_type == new.terms.type and (held == new.payload or payload.same(held, new.payload)):
        return
    key = str(new.idempotency_key)
    raise IdempotencyConflict(
        key, job_id, f"{owner}, {job_type} {_short(held)}", f"{new.terms.type} {_short(new.payload)}", place
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _meta(job_type: JobType, using: Enqueue) -> str:
    found: dict[str, Any] = dict(job_type.meta)
    if job_type.tags:
        found["tags"] = list(job_type.tags)
    if using.idempotency_key is not None and using.unique not in (None, Job.KeyHolds.WINDOW):
        found["key"] = using.idempotency_key  # kept when the key itself is freed
    return payload.dump(found) if found else "{}"


def _timeout(job_type: JobType, using: Enqueue, default: float) -> float | None:
    if not isinstance(using.timeout, _Unset):
        return using.timeout
    return default if job_type.default_timeout else job_type.timeout
