"""Checking the calls of one `enqueue_many`, one after the other, and making of each what is to be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django_jobs import tracing
from django_jobs.calls import Call
from django_jobs.conf import conf
from django_jobs.engines.values import NewJob, Terms
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.options import Enqueue
from django_jobs.queue.arguments import payload_of, plain_payload
from django_jobs.queue.new_job import refuse_split_transaction, terms_of
from django_jobs.registry import JobType

# Sets of options that are remembered at a time.
KNOWN = 1_000


def iterator(job_type: JobType, calls: Iterable[Call[Any]]) -> Iterator[Any]:
    try:
        return iter(calls)
    except TypeError:
        raise InvalidJobType(f"enqueue_many() was given {shown(calls)}; {_how(job_type)}.") from None


def _how(job_type: JobType) -> str:
    name = job_type.function.__name__
    return f"give it calls, as in {name}.enqueue_many([{name}.call(...), ...])"


class Check:
    """Makes of each call what is to be stored.

    What calls have besides their arguments is the same object for the same options, which are mostly the last ones.
    """

    def __init__(self, job_type: JobType, using: Enqueue, alias: str, elsewhere: str | None) -> None:
        self._job_type, self._using = job_type, using
        self._alias, self._elsewhere = alias, elsewhere
        self._limit = conf().max_payload_bytes
        self._last: Enqueue | None = None
        self._terms: Terms
        self._key: str | None = None
        self._known: dict[Any, Terms] = {}

    def __call__(self, place: int, call: Any, alone: Callable[[], None]) -> NewJob:
        """Return what is to be stored. `alone` is called before code of others may run, as that which shows a wrong value."""
        try:
            if type(call) is not Call:
                alone()
            if not (type(call) is Call and call.using is self._last and call.job_type is self._job_type):
                self._read_options(call)
            text = plain_payload(self._job_type, call.args, call.kwargs, self._limit)
            if text is None:
                alone()
                text = payload_of(self._job_type, call.args, call.kwargs, self._limit)
            return NewJob(self._terms, text, self._key)
        except (InvalidJob, InvalidJobType) as error:
            raise type(error)(f"calls[{place}]: {error}") from None

    def _read_options(self, call: Any) -> None:
        self._last = None
        options = _options(call, self._job_type, self._using)
        if not options.detached:
            refuse_split_transaction(self._elsewhere, self._alias)
        self._terms, self._key = self._of(options), options.idempotency_key
        self._last = call.using

    def _of(self, options: Enqueue) -> Terms:
        apart = options.apart()
        terms = self._known.get(apart)
        if terms is None:
            if len(self._known) == KNOWN:
                self._known.clear()
            terms = terms_of(self._job_type, options)
            terms = self._known[apart] = tracing.carrying(terms) if tracing.is_on() else terms
        return terms


def _options(call: Any, job_type: JobType, using: Enqueue) -> Enqueue:
    if not isinstance(call, Call):
        raise InvalidJobType(f"{shown(call)} is no call; {_how(job_type)}.")
    if call.job_type.name != job_type.name:
        raise InvalidJobType(
            f"it is a call of {call.job_type.name}, and enqueue_many() is that of {job_type.name}; "
            "enqueue the calls of each job by its own."
        )
    return call.using.over(using)
