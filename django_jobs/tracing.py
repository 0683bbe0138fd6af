"""Spans and metrics of OpenTelemetry, by its conventions for messaging, where its API is installed and a provider is set.

A job that is sent carries the trace in its `meta`. Its first run, if it was due at once, is part of that trace; what is delayed,
and what runs again, has a trace of its own with a link to it: a trace of days helps nobody.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.engines.values import Claimed, Terms

NAME = "django_jobs"
FLUSH_SECONDS = 2.0
# In what a job carries: its first run is no part of the trace that sent it.
APART = "apart"


# The API sets a provider by itself where it is told to.
if "OTEL_PYTHON_TRACER_PROVIDER" in os.environ and importlib.util.find_spec("opentelemetry"):
    importlib.import_module("opentelemetry.trace")


def is_on() -> bool:
    """Tell whether anybody wants to hear. Asked for each job: it is one look while nobody has imported the API.

    Whoever sets a provider has. We import it for nobody else: it takes half a MiB.
    """
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and _is_provided(trace)


def _is_provided(trace: Any) -> bool:
    # Until a provider is set, there is one that only stands for it. Whoever sets one does so before the first job.
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Sent:
    """The sending of one job, or of many at once."""

    def __init__(self, span: Any, attributes: dict[str, Any]) -> None:
        self._span, self._attributes = span, attributes

    def stored(self, ids: Sequence[int | None]) -> None:
        if len(ids) == 1 and ids[0] is not None:
            self._span.set_attribute("messaging.message.id", str(ids[0]))
        else:
            self._span.set_attribute("messaging.batch.message_count", len(ids))
        _instruments()["sent"].add(len(ids), self._attributes)


@contextmanager
def sending(job_type: str, queue: str) -> Iterator[Sent]:
    """Be the span in which jobs are sent; what is raised within is its error."""
    from opentelemetry.trace import SpanKind

    attributes = _attributes(queue, "send", "enqueue")
    began = perf_counter()
    with _tracer().start_as_current_span(
        f"enqueue {job_type}", kind=SpanKind.PRODUCER, attributes={**attributes, "django_jobs.type": job_type}
    ) as span:
        try:
            yield Sent(span, attributes)
        except BaseException as error:
            attributes["error.type"] = type(error).__qualname__
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            _instruments()["sending"].record(perf_counter() - began, attributes)


def carrying(terms: Terms) -> Terms:
    """Return terms whose job carries the trace in which it is sent."""
    from opentelemetry import propagate

    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    if not carrier:
        return terms
    if not terms.is_due:
        carrier[APART] = True
    return replace(terms, meta=json.dumps({**json.loads(terms.meta), "trace": carrier}))


class Processed:
    """One run of a job."""

    def __init__(self, span: Any, attributes: dict[str, Any]) -> None:
        self._span, self._attributes = span, attributes

    def ended(self, what: str, error: str | None) -> None:
        """Tell how it ended: done, or a word for why not, with what was said of that if it is an error."""
        self._span.set_attribute("django_jobs.end", what)
        if error is not None:
            self._attributes["error.type"] = what
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", what)
            self._span.set_status(Status(StatusCode.ERROR, error))


@contextmanager
def processing(claimed: Claimed) -> Iterator[Processed]:
    """Be the span of a run, current where its function is called."""
    from opentelemetry.trace import SpanKind

    attributes = _attributes(claimed.queue, "process", "run")
    parent, links = _origin(claimed)
    began = perf_counter()
    with _tracer().start_as_current_span(
        f"run {claimed.type}",
        context=parent,
        kind=SpanKind.CONSUMER,
        links=links,
        attributes={
            **attributes,
            "messaging.message.id": str(claimed.id),
            "django_jobs.type": claimed.type,
            "django_jobs.attempt": claimed.attempts + 1,
            "django_jobs.run": claimed.token,
            "django_jobs.waited": claimed.waited,
        },
    ) as span:
        processed = Processed(span, attributes)
        try:
            yield processed
        finally:
            _instruments()["consumed"].add(1, attributes)
            _instruments()["duration"].record(perf_counter() - began, attributes)


def flush() -> None:
    """Have what was recorded sent, within seconds: the process is about to end."""
    if not is_on():
        return
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        force: Any = getattr(provider, "force_flush", None)
        if force is not None:
            try:
                force(timeout_millis=int(FLUSH_SECONDS * 1000))
            except Exception:
                pass  # an exporter of the project's must not keep a process from ending as it should


def _origin(claimed: Claimed) -> tuple[Any, list[Any]]:
    """Return the context that a run is part of, and what it is linked to."""
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

    nothing = Context()
    if claimed.trace is None:
        return nothing, []
    try:
        carrier = json.loads(claimed.trace)
        context = propagate.extract({name: value for name, value in carrier.items() if isinstance(value, str)}, nothing)
    except (ValueError, AttributeError):  # written by somebody else
        return nothing, []
    span = trace.get_current_span(context).get_span_context()
    if not span.is_valid:
        return nothing, []
    is_part = claimed.token == 1 and not carrier.get(APART)
    return (context if is_part else nothing), [trace.Link(span)]


def _attributes(queue: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "messaging.system": NAME,
        "messaging.destination.name": queue,
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }


@cache
def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer(NAME)


@cache
def _instruments() -> dict[str, Any]:
    from opentelemetry import metrics

    meter = metrics.get_meter(NAME)
    return {
        "sent": meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued."),
        "sending": meter.create_histogram("messaging.client.operation.duration", "s", "How long an enqueue took."),
        "consumed": meter.create_counter("messaging.client.consumed.messages", "{message}", "Runs of jobs."),
        "duration": meter.create_histogram("messaging.process.duration", "s", "How long runs took."),
    }
